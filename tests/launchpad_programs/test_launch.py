"""`retrax launch`: wrong input is refused in one sentence, before any process starts."""

import os
import subprocess
import sys

import pytest
from program_configs import make_run

import retrax
from retrax.command.main import main
from retrax.launchpad_programs import launch as launch_module
from retrax.launchpad_programs import launch_command
from retrax.launchpad_programs.engines import options as options_module
from retrax.launchpad_programs.engines.options import (
    OLDEST_RAY,
    EngineOptions,
    missing_packages,
    ray_version,
)
from retrax.launchpad_programs.launcher import LaunchSummary
from retrax.training import checks
from retrax.training.config_file import write_config
from retrax.training.directory_lock import DirectoryLock
from retrax.training.state_file import write_state

needs_launchpad = pytest.mark.skipif(
    missing_packages() != [],
    reason="needs the distributed tier (Python 3.10, Linux)",
)

needs_engine = pytest.mark.skipif(
    missing_packages() != [] and ray_version() < OLDEST_RAY,
    reason="needs the distributed or the cluster tier",
)

FAILING = """
import gymnasium

class Reset(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        raise RuntimeError("no maze")
"""

ENGINES = {"local_mp": "start_processes", "local_mt": "start_threads"}
CATCH = ["reactor", "--environment", "catch"]
WORKERS = [*CATCH, "--num-workers", 2]


@pytest.fixture
def refused(monkeypatch, capsys):
    """Runs `retrax launch ...`, which must refuse, and returns its message in one line."""
    monkeypatch.setattr(launch_command.isolation, "isolate", lambda: "")

    def run(*arguments):
        assert main(["launch", *map(str, arguments)]) == 2
        message = capsys.readouterr().err.removeprefix("retrax: ")
        return " ".join(message.replace("│", " ").split())

    return run


def test_without_the_tier_the_pinned_requirements_are_advised(refused, monkeypatch, tmp_path):
    monkeypatch.setattr(launch_module, "missing_packages", lambda: ["launchpad", "reverb"])
    directory = tmp_path / "run"
    sentence = refused(*CATCH, "--run-directory", directory, "--engine", "launchpad")
    assert not directory.exists()
    assert "Python 3.10" in sentence
    assert "pip install -r requirements.txt" in sentence
    assert "elsewhere pip install 'retrax[distributed]'" in sentence
    assert "not installed: launchpad, reverb" in sentence


@needs_engine
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "retrax launch needs an agent first (acer, agent57, d4pg, reactor, or module:NAME)"),
        ([*CATCH, "--num-actors", -1], "--num-actors must be an integer >= 0, got -1"),
        pytest.param([*CATCH, "--num-actors", 10**6], "of memory, but", marks=needs_launchpad),
        ([*CATCH, "--num-envs", 3], "num_envs must be a multiple of num_actors 2, got 3"),
        ([*CATCH, "--steps", 0], "steps must be an integer >= 1"),
        ([*CATCH, "--acme", "no_such:OPTIONS"], "no_such"),
        (
            [*CATCH, "--num-envs", 200_000],
            "over 200000 environments keeps 0 rows each, but a sequence needs 17",
        ),
        (
            ["acer", "--environment", "catch", "--agent.vector-sizes", 10**7, 10**7],
            "GB for the learner's state, needs",
        ),
        (["reactor", "--environment", "failing_maze:Reset"], "0: RuntimeError: no maze."),
        ([*CATCH, "--max-staleness", 2], "max_staleness is of workers: give num_workers, got 0"),
        ([*CATCH, "--decoupled"], "WorkerOptions.decoupled is of workers: give num_workers"),
        ([*WORKERS, "--num-actors", 3], "num_actors must be num_workers 2, since every worker"),
        ([*WORKERS, "--actor-update-period", 3], "actor_update_period must be None with workers"),
        ([*WORKERS, "--acme", "json:loads"], "acme must be None with workers"),
        ([*WORKERS, "--max-staleness", -1], "WorkerOptions.max_staleness must be an integer >= 0"),
        ([*WORKERS, "--gradients-per-fetch", 0], "gradients_per_fetch must be an integer >= 1"),
        ([*WORKERS, "--learner-devices", 2], "learner_devices must be 1 with workers"),
        (["--resume", "/nowhere"], "/nowhere is not a run directory"),
    ],
)
def test_wrong_arguments(refused, arguments, expected, tmp_path, monkeypatch):
    (tmp_path / "failing_maze.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    if "--environment" in arguments and "--run-directory" not in arguments:
        arguments = [*arguments, "--run-directory", tmp_path / "run"]
    assert expected in refused(*arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.distributed
@needs_launchpad
@pytest.mark.parametrize("name", ["run", "sync"])  # a directory's name must not matter
def test_without_a_namespace_it_is_refused(refused, monkeypatch, tmp_path, name):
    monkeypatch.setattr(launch_command.isolation, "isolate", lambda: "not permitted")
    monkeypatch.chdir(tmp_path)
    sentence = refused("reactor", "--environment", "catch", "--run-directory", name)
    assert "can execute code in it" in sentence
    assert "private network namespace (not permitted)" in sentence
    assert "--listen-everywhere" in sentence
    assert "kernel.unprivileged_userns_clone=1" in sentence
    assert list(tmp_path.iterdir()) == []


def test_from_python_it_is_refused_too(tmp_path, monkeypatch):
    monkeypatch.setattr(launch_command.isolation, "probe", lambda: "not permitted")
    with pytest.raises(ValueError, match=r"namespace \(not permitted\).* or give --listen-every"):
        retrax.launch(make_run(), tmp_path / "run", engine=EngineOptions(engine="launchpad"))
    assert not (tmp_path / "run").exists()


@pytest.mark.distributed
@needs_launchpad
@pytest.mark.parametrize("switch", ["--listen-everywhere", "--listen_everywhere"])
def test_listening_everywhere_is_asked_for(launched, told, monkeypatch, tmp_path, switch):
    def isolate():
        raise AssertionError("it must not be isolated")

    monkeypatch.setattr(launch_command.isolation, "isolate", isolate)
    run = ["--environment", "catch", "--run-directory", str(tmp_path / "run")]
    assert main(["launch", "reactor", *run, switch]) == 0
    assert "whoever can connect can execute code in this program" in told[0][1]


@needs_engine
def test_run_directories_that_are_in_use(refused, tmp_path):
    launch = ["reactor", "--environment", "catch", "--run-directory"]
    (tmp_path / "file").write_text("")
    assert refused(*launch, tmp_path / "file").endswith("is a file.")
    assert "is not empty, and holds no run" in refused(*launch, tmp_path)
    (tmp_path / "file").unlink()
    write_config(tmp_path, make_run())
    assert "holds a run with another config" in refused(*launch, tmp_path)


@pytest.mark.parametrize(
    ("directory", "expected"), [("/proc/a/b", "cannot be written to"), ("run", "no engine today")]
)
def test_the_run_directory_is_made_before_the_engine_starts(
    refused, monkeypatch, tmp_path, directory, expected
):
    """If the engine then does not start, the directory is removed."""

    def open_engine(*arguments, **options):
        assert (tmp_path / directory).is_dir()
        raise ValueError("no engine today.")

    monkeypatch.setattr(launch_module, "open_engine", open_engine)
    run = ["--launch", "local_mt", "--run-directory", tmp_path / directory]
    assert expected in refused(*CATCH, *run)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def launched(monkeypatch, told):
    """Programs that would have been run: their configs and modes."""
    programs = []

    def run_program(config, engine, *, mode, plain, notes, warnings):
        with pytest.raises(ValueError, match=f"is in use by process {os.getpid()}"):
            DirectoryLock(config.directory)
        assert engine.__name__ == ENGINES[mode]
        programs.append((config, mode))
        told.append([*notes, *warnings])
        return LaunchSummary(config.directory, 0, 0, finished=True, failed=False, snapshot=None)

    monkeypatch.setattr(launch_module, "run_program", run_program)
    monkeypatch.setattr(launch_command.isolation, "isolate", lambda: "")
    return programs


@pytest.fixture
def told():
    """Notes for the logs of the programs that `launched` has."""
    return []


@pytest.mark.distributed
@needs_launchpad
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "2 actors * 4 environments"),
        (["--num-envs", "6"], "2 actors * 3 environments"),
        (["--num-actors", "3"], "3 actors * 4 environments"),
        (["--acme", "acme_options:OPTIONS"], "2 actors * 1 environments"),
        (["--num-workers", "2"], "2 workers * 1 environments"),
    ],
)
def test_the_environments_of_each_actor_are_printed(
    launched, tmp_path, capsys, monkeypatch, flags, expected
):
    (tmp_path / "acme_options.py").write_text(
        "from retrax.launchpad_programs.config import AcmeOptions\nOPTIONS = AcmeOptions()\n"
    )
    monkeypatch.chdir(tmp_path)
    new = ["launch", "reactor", "--environment", "catch", "--steps", "1000", *flags]
    assert main([*new, "--run-directory", str(tmp_path / "run")]) == 0
    assert expected in capsys.readouterr().err
    ((config, _),) = launched
    count, _, _, each, _ = expected.split()
    assert config.run.num_envs == int(count) * int(each)


@pytest.mark.distributed
@needs_launchpad
def test_a_program_is_launched_and_resumed_with_its_options(
    launched, told, refused, tmp_path, capsys
):
    directory = tmp_path / "run"
    new = ["launch", "reactor", "--environment", "catch", "--num-actors", "3", "--steps", "1000"]
    new += ["--num-envs", "6", "--actor-update-period", "7", "--launch", "local_mt"]
    new += ["--evaluation-episodes", "4", "--run-directory", str(directory)]
    assert main(new) == 0
    ((config, mode),) = launched
    run = config.run
    assert (mode, run.num_envs, run.num_actors, run.actor_update_period) == ("local_mt", 6, 3, 7)
    assert (run.evaluation_episodes, run.schedule) == (4, (1000, 10, 200))
    assert "with 3 discrete actions: the default preset of reactor for them is small" in told[0][0]
    capsys.readouterr()
    assert f"retrax launch --resume {directory}" in refused(*new[1:])
    resume = ["launch", "--resume", str(directory), "--steps", "2000"]
    assert main(resume) == 0
    (directory / "snapshots").mkdir()
    write_state(directory / "snapshots" / "300.npz", {})
    assert main([*resume[:1], "reactor", *resume[1:]]) == 0
    assert [resumed.resumed_at for resumed, _ in launched[1:]] == [None, 300]
    capsys.readouterr()
    with DirectoryLock(directory):
        assert f"is in use by process {os.getpid()}" in refused(*resume[1:])
        assert f"is in use by process {os.getpid()}" in refused(*new[1:])
    for resumed, mode in launched[1:]:
        assert (mode, resumed.run.steps) == ("local_mp", 2000)
        assert resumed.run.evaluation_episodes == 4
        assert resumed.run.num_actors == 3


@needs_engine
def test_a_run_of_one_process_is_not_resumed_as_a_program(refused, tmp_path):
    write_config(tmp_path, make_run())
    sentence = refused("--resume", tmp_path)
    assert "was trained in one process" in sentence
    assert f"retrax train --resume {tmp_path}" in sentence


@pytest.mark.parametrize("missing", [[], ["launchpad"]])
def test_the_default_is_launchpad_where_it_is_installed(missing, monkeypatch):
    monkeypatch.setattr(options_module, "missing_packages", lambda: missing)
    assert EngineOptions().name == ("ray" if missing else "launchpad")
    for name in ("launchpad", "ray"):
        assert EngineOptions(engine=name).name == name


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--engine", "launchpad", "--launch", "local_mt"], "leave --launch local_mt out"),
        (["--engine", "ray", "--launch", "local_mt"], "leave --launch local_mt out"),
        (["--ray-address", "here:1", "--launch", "local_mt"], "--ray-address needs --engine ray"),
        (["--launch", "sync"], "invalid choice 'sync' for argument '--launch'"),
        (["--ray-address", "here:1", "--engine", "launchpad"], "--ray-address needs --engine ray"),
        (["--max-failures", -1], "max_failures must be an integer >= 0, got -1"),
        (["--max-lead", -1], "max_lead must be an integer >= 0"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_before_anything_is_written(
    refused, options, expected, tmp_path
):
    assert expected in refused(*CATCH, "--run-directory", tmp_path / "run", *options)
    assert not (tmp_path / "run").exists()


def test_the_module_is_the_command():
    """Python starts programs so: a wrong option is named there too, with exit status 2."""
    command = [sys.executable, "-m", "retrax.launchpad_programs", "reactor", "--launch", "local_mt"]
    refused = subprocess.run([*command, "--stepz", "3"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "Unrecognized options" in refused.stderr
    assert "--stepz" in refused.stderr


def test_help_lists_the_agents_fields(capsys):
    assert main(["launch", "reactor", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--num-actors" in shown
    assert "--agent.replay.selector" in shown


def test_an_agent_that_fails_the_conformance_test_is_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    def check_agent_shapes(agent, spec, entry):
        raise ValueError("Agent.explore is wrong.")

    monkeypatch.setattr(checks, "check_agent_shapes", check_agent_shapes)
    with pytest.raises(ValueError, match=r"Agent\.explore is wrong\."):
        retrax.launch(make_run(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
