"""`retrax launch`: wrong input is refused in one sentence, before any process starts."""

import contextlib
import dataclasses
import importlib.metadata
import os
import pathlib
import re
import signal
import socket

import pytest
from program_configs import make_config, make_run, make_workers

import retrax
from retrax.basics.files import write_json
from retrax.command.main import main
from retrax.launchpad_programs import launch as launch_module
from retrax.launchpad_programs.config import STATUS, write_program
from retrax.launchpad_programs.engines import options as options_module
from retrax.launchpad_programs.engines import ray_session
from retrax.launchpad_programs.engines.options import (
    OLDEST_RAY,
    EngineOptions,
    missing_packages,
    ray_version,
)
from retrax.launchpad_programs.engines.ray_session import check_cpus, object_bytes
from retrax.launchpad_programs.launcher import LaunchSummary
from retrax.replay.packing import Packing
from retrax.replay.rows import row_spec
from retrax.training import assembly
from retrax.training.learner import Snapshot, packing_of
from retrax.training.process import DirectoryLock
from retrax.training.run_config import PROGRAM, write_config
from retrax.training.snapshots import Snapshots

needs_launchpad = pytest.mark.skipif(
    missing_packages() != [], reason="needs the distributed tier (Python 3.10, Linux)"
)
needs_engine = pytest.mark.skipif(
    missing_packages() != [] and ray_version() < OLDEST_RAY,
    reason="needs the distributed or the cluster tier",
)
CATCH = ["reactor", "--environment", "catch"]
WORKERS = [*CATCH, "--num-workers", 2]
MT = ["--engine", "threads"]


@pytest.fixture
def isolated(monkeypatch):
    """Decides why there is no network namespace; "" if there is one."""

    def decide(refused=""):
        monkeypatch.setattr(options_module.isolation, "isolate", lambda: refused)
        monkeypatch.setattr(options_module.isolation, "probe", lambda: refused)

    decide()
    return decide


@pytest.fixture
def refused(isolated, capsys):
    """Runs `retrax launch ...`, which must refuse, and returns its message in one line."""

    def run(*arguments):
        capsys.readouterr()
        assert main(["launch", *map(str, arguments)]) == 2
        message = capsys.readouterr().err.removeprefix("retrax: ")
        return " ".join(message.replace("│", " ").split())

    return run


@pytest.fixture
def install(monkeypatch):
    """Pretends that a version of Ray is installed, or none."""
    real = importlib.metadata.version

    def install(version):
        def find(name):
            if name == "ray" and version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version if name == "ray" else real(name)

        monkeypatch.setattr(importlib.metadata, "version", find)

    return install


OLDER = "needs Ray 2.48 or newer, but {} is installed: pip install 'ray>=2.48'"
RAY = ["--engine", "ray"]
JOINED = [*RAY, "--listen-everywhere", "--ray-address"]


@pytest.mark.parametrize(
    ("version", "options", "expected"),
    [
        (None, RAY, "--engine ray needs Ray: pip install -e '.[cluster]' in a clone, elsewhere"),
        ("2.47.1", RAY, OLDER.format("2.47")),
        ("1.13.0", RAY, OLDER.format("1.13")),
        ("2.9.3", RAY, OLDER.format("2.9")),
        ("2.48.0", [*RAY, "--num-actors", 50], "asks for 5.8 CPUs (0.8 on this host, and 0.1 "),
        ("2.48.0", [*RAY, "--ray-address", "here:1"], "needs --listen-everywhere: the nodes conn"),
        *(
            ("2.48.0", [*JOINED, wrong], f"--ray-address must be HOST:PORT, got {wrong}.")
            for wrong in ("here", ":1", "here:", "ray://here", "here:one")
        ),
        ("2.48.0", [*JOINED, "localhost:6379"], "the one that ray start printed, got localhost"),
        ("2.48.0", [*JOINED, "127.0.0.1:6379"], "the one that ray start printed, got 127.0.0.1"),
        ("2.48.0", [*JOINED, "127.0.0.2:7"], "No Ray answers at --ray-address 127.0.0.2:7 ("),
        ("2.48.0", [*JOINED, "127.0.0.2:70000"], "No Ray answers at --ray-address 127.0.0.2:700"),
        ("2.60.0", ["--ray-address", "here:1", *MT], "--ray-address needs --engine ray"),
        ("2.60.0", ["--engine", "sync"], "invalid choice 'sync' for argument '--engine'"),
        ("2.60.0", ["--ray-address", "a:1", "--engine", "launchpad"], "needs --engine ray"),
        ("2.60.0", ["--max-failures", -1], "max_failures must be an integer >= 0, got -1"),
        ("2.60.0", ["--max-lead", -1], "max_lead must be an integer >= 0"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_before_anything_is_written(
    refused, install, monkeypatch, version, options, expected, tmp_path
):
    install(version)
    monkeypatch.setattr(ray_session, "cpus", lambda: 2)
    assert expected in refused(*CATCH, "--run-directory", tmp_path / "run", *options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("version", "has_tokens"), [("2.51.2", False), ("2.52.0", True)])
def test_what_ray_can_do_is_not_refused(install, version, has_tokens):
    """A token is enough to keep others away."""
    install(version)
    assert EngineOptions(engine="ray").needs_namespace != has_tokens
    with socket.create_server(("127.0.0.2", 0)) as server:
        address = f"127.0.0.2:{server.getsockname()[1]}"
        for run in (make_run(), make_workers()):
            config = make_config(pathlib.Path("run"), run=run)
            launch_module.check_engine(EngineOptions(engine="ray"), config)
            joined = EngineOptions(engine="ray", ray_address=address, listen_everywhere=True)
            launch_module.check_engine(joined, config)


def test_without_the_tier_the_pinned_requirements_are_advised(refused, monkeypatch, tmp_path):
    monkeypatch.setattr(launch_module, "missing_packages", lambda: ["launchpad", "reverb"])
    sentence = refused(*CATCH, "--run-directory", tmp_path / "run", "--engine", "launchpad")
    assert not (tmp_path / "run").exists()
    advice = "pip install -r requirements.txt in a clone, elsewhere pip install 'retrax[distributed"
    for part in ("Python 3.10", advice, "(not installed: launchpad, reverb)"):
        assert part in sentence


@needs_engine
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Name an agent (acer, agent57, d4pg, reactor, or module:NAME): retrax launch AGENT"),
        ([*CATCH, "--num-actors", -1], "--num-actors must be an integer >= 0, got -1"),
        pytest.param([*CATCH, "--num-actors", 10**6], "GB, but only", marks=needs_launchpad),
        ([*CATCH, "--steps", 0], "steps must be an integer >= 1"),
        ([*CATCH, "--evaluate-every", 100], "evaluate_every must be None: a program's evaluator"),
        ([*CATCH, "--on-device"], "on_device must be False in a program: retrax train has it"),
        ([*CATCH, "--acme", "no_such:OPTIONS"], "no_such"),
        (
            [*CATCH, "--num-envs", 200_000],
            "over 200000 environments keeps 0 rows each, but a sequence needs 17",
        ),
        (
            ["acer", "--environment", "catch", "--agent.vector-sizes", 10**7, 10**7],
            "GB for the learner's state, needs",
        ),
        ([*CATCH, "--max-staleness", 2], "max_staleness needs workers: give num_workers, got 0"),
        ([*CATCH, "--decoupled"], "WorkerOptions.decoupled needs workers: give num_workers"),
        ([*WORKERS, "--acme", "json:loads"], "acme must be None with workers"),
        ([*WORKERS, "--max-staleness", -1], "WorkerOptions.max_staleness must be an integer >= 0"),
        ([*WORKERS, "--gradients-per-fetch", 0], "gradients_per_fetch must be an integer >= 1"),
        (["--resume", "/nowhere"], "/nowhere is not a run directory"),
    ],
)
def test_wrong_arguments(refused, arguments, expected, tmp_path):
    if "--environment" in arguments:
        arguments = [*arguments, "--run-directory", tmp_path / "run"]
    assert expected in refused(*arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.distributed
@needs_launchpad
@pytest.mark.parametrize("name", ["run", "sync"])  # a directory's name must not matter
def test_without_a_namespace_it_is_refused(refused, isolated, monkeypatch, tmp_path, name):
    isolated("not permitted")
    monkeypatch.chdir(tmp_path)
    sentence = refused(*CATCH, "--run-directory", name)
    refusal = "can execute code in it, and this system refuses it a private network namespace (not"
    for part in (refusal, "kernel.unprivileged_userns_clone=1", "--listen-everywhere"):
        assert part in sentence
    assert list(tmp_path.iterdir()) == []


def test_from_python_it_is_refused_too(isolated, monkeypatch, tmp_path):
    """Without a namespace, and if the agent fails its conformance test."""
    isolated("not permitted")
    with pytest.raises(ValueError, match=r"namespace \(not permitted\).* or give --listen-every"):
        retrax.launch(make_run(), tmp_path / "run", engine=EngineOptions(engine="launchpad"))
    isolated()

    def check_agent_shapes(agent, spec, entry):
        raise ValueError("Agent.explore is wrong.")

    monkeypatch.setattr(assembly, "check_agent_shapes", check_agent_shapes)
    with pytest.raises(ValueError, match=r"Agent\.explore is wrong\."):
        retrax.launch(make_run(), tmp_path / "run", engine=EngineOptions(engine="threads"))
    assert not (tmp_path / "run").exists()


@needs_engine
def test_run_directories_that_are_refused(refused, tmp_path):
    write_config(tmp_path, make_run())
    assert "holds a run with another config" in refused(*CATCH, "--run-directory", tmp_path)
    advice = f"was trained in one process: continue it with retrax train --resume {tmp_path}"
    assert advice in refused("--resume", tmp_path)
    for text, why in (("", "Expecting value"), ('{"x": 1}', "unexpected keyw"), ("[1]", "cannot")):
        (tmp_path / PROGRAM).write_text(text)
        found = refused("--resume", tmp_path)
        assert f"{tmp_path / PROGRAM} is damaged or of another version of retrax (" in found
        assert why in found
    program = make_config(tmp_path, run=make_run(steps=300, evaluate_every=0))
    write_program(program)
    Snapshots(tmp_path).save(300, Snapshot((), {}, {"steps": 300}))
    write_json(tmp_path / STATUS, {"phase": "finished"})
    for more in ([], ["--steps", 200]):
        assert "is at 300 steps already: to continue" in refused("--resume", tmp_path, *more)


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
    assert expected in refused(*CATCH, *MT, "--run-directory", tmp_path / directory)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def launched(isolated, monkeypatch):
    """Programs that would have been run: their configs, engines, and notes for their logs."""
    programs, engines = [], {"launchpad": "start_processes", "threads": "start_threads"}

    def run_program(config, engine, *, name, plain, notes, warnings):
        with pytest.raises(ValueError, match=f"is in use by process {os.getpid()}"):
            DirectoryLock(config.directory)
        assert engine.__name__ == engines[name]
        programs.append((config, name, [*notes, *warnings]))
        return LaunchSummary(config.directory, 0, 0, finished=True, failed=False, snapshot=None)

    monkeypatch.setattr(launch_module, "run_program", run_program)
    return programs


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
        (["--listen-everywhere"], "2 actors * 4 environments"),
        (["--listen_everywhere"], "2 actors * 4 environments"),
    ],
)
def test_the_environments_of_each_actor_are_printed(
    launched, tmp_path, capsys, monkeypatch, flags, expected
):
    """Who can connect is logged."""
    (tmp_path / "acme_options.py").write_text(
        "from retrax.launchpad_programs.config import AcmeOptions\nOPTIONS = AcmeOptions()\n"
    )
    monkeypatch.chdir(tmp_path)
    if listens := "--listen" in "".join(flags):
        monkeypatch.setattr(options_module.isolation, "isolate", None)  # which is not called
    new = ["launch", *CATCH, "--steps", "1000", *flags]
    assert main([*new, "--run-directory", str(tmp_path / "run")]) == 0
    assert expected in capsys.readouterr().err
    ((config, _, told),) = launched
    count, _, _, each, _ = expected.split()
    assert config.run.num_envs == int(count) * int(each)
    everybody = "whoever can connect can execute code in this program"
    assert any(everybody in note for note in told) == listens


@pytest.mark.distributed
@needs_launchpad
def test_a_program_is_launched_and_resumed_with_its_options(launched, refused, tmp_path):
    directory = tmp_path / "run"
    new = [*CATCH, "--num-actors", "3", "--steps", "1000", "--num-envs", "6", *MT]
    new += ["--actor-update-period", "7", "--evaluation-episodes", "4"]
    new += ["--run-directory", str(directory)]
    assert main(["launch", *new]) == 0
    ((config, name, told),) = launched
    run = config.run
    assert (name, run.num_envs, run.num_actors, run.actor_update_period) == ("threads", 6, 3, 7)
    assert (run.evaluation_episodes, run.schedule) == (4, (1000, 10, 200))
    assert "with 3 discrete actions: the default preset of reactor for them is small" in told[0]
    assert f"retrax launch --resume {directory}" in refused(*new)
    resume = ["--resume", str(directory), "--steps", "2000"]
    assert main(["launch", *resume]) == 0
    Snapshots(directory).save(300, Snapshot((), {}, {"steps": 300}))
    assert main(["launch", "reactor", *resume]) == 0
    assert [resumed.resumed_at for resumed, *_ in launched[1:]] == [None, 300]
    with DirectoryLock(directory):
        for arguments in (resume, new):
            assert f"is in use by process {os.getpid()}" in refused(*arguments)
    for resumed, name, _ in launched[1:]:
        assert (name, resumed.run.steps) == ("launchpad", 2000)
        assert (resumed.run.evaluation_episodes, resumed.run.num_actors) == (4, 3)


@pytest.mark.parametrize("missing", [[], ["launchpad"]])
def test_the_default_is_launchpad_where_it_is_installed(missing, monkeypatch):
    monkeypatch.setattr(options_module, "missing_packages", lambda: missing)
    names = [EngineOptions(engine=engine).name for engine in (None, "launchpad", "ray")]
    assert names == ["ray" if missing else "launchpad", "launchpad", "ray"]


TWO = "each of 13 actors), but this machine has 2: at most 12 actors fit."


@pytest.mark.parametrize(
    ("num_actors", "there", "home", "expected"),
    [
        (2, 1.0, 9.0, None),  # 0.5 for the learner, 0.1 for each other node
        (12, 2.0, 9.0, None),
        (13, 2.0, 9.0, f"asks for 2.1 CPUs (0.8 on this host, and 0.1 for {TWO}"),
        (1, 0.5, 9.0, "this machine has 0.5: no actor fits"),
        ("workers", 0.9, 9.0, None),
        ("workers", 0.8, 9.0, "asks for 0.9 CPUs (0.7 on this host, and 0.1 for each of 2 work"),
        (2, 1.0, 0.8, None),
        (2, 1.0, 0.0, "but this host has 0: give ray start more --num-cpus."),
    ],
)
def test_cpus_by_hand(tmp_path, num_actors, there, home, expected):
    workers = num_actors == "workers"
    run = make_workers() if workers else make_run(num_envs=num_actors, num_actors=num_actors)
    wrong = pytest.raises(ValueError, match=re.escape(expected)) if expected else None
    with wrong or contextlib.nullcontext():
        check_cpus(make_config(tmp_path, run=run), there, "this machine has", home=home)


def test_memory_for_what_ray_carries_by_hand(tmp_path, monkeypatch):
    """Twice five draws; for each actor 2 chunks of 32 rows of 2 environments, parameters twice.

    Small draws travel together: up to four in an answer, which has then 2^20 bytes at most.
    """
    assert object_bytes(make_config(tmp_path)) == 2**28
    large = dataclasses.replace(make_run().agent_config.replay, batch_size=10_000)
    run = make_run(num_envs=4)
    run = dataclasses.replace(run, agent_config=dataclasses.replace(run.agent_config, replay=large))
    config = make_config(tmp_path, run=run)
    agent = config.make_agent(config.spec)
    row = Packing(row_spec(config.spec, agent.sequence)).dtype.itemsize
    each = 2 * 32 * 2 * row + 2 * packing_of(agent).num_bytes
    # Numbers, three keys and a weight for each sequence, and the rows; each from a multiple of 64.
    parts = 8 * 8, 10_000 * 3 * 8, 10_000 * 4, 10_000 * agent.sequence.length * row
    draw = sum(-(-part // 64) * 64 for part in parts)
    assert object_bytes(config) == 2 * (5 * draw + 2 * each)
    monkeypatch.setattr(ray_session, "_LEAST_OBJECT_BYTES", 0)
    config = make_config(tmp_path, num_envs=4)
    assert 4 * config.run.replay.draw_size * agent.sequence.length * row < 2**20
    assert object_bytes(config) == 2 * (5 * 2**20 + 2 * each)


def test_only_the_owner_can_read_the_token_of_a_program(tmp_path):
    tokens = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        variables = ray_session._variables(str(tmp_path / name))
        path = pathlib.Path(variables["RAY_AUTH_TOKEN_PATH"])
        assert path.stat().st_mode & 0o777 == 0o600
        tokens.append(path.read_text())
        assert variables["RAY_AUTH_MODE"] == "token"
    assert len(set(tokens)) == 2
    assert all(re.fullmatch("[0-9a-f]{64}", token) for token in tokens)


def test_a_signal_waits_until_ray_has_started(tmp_path, monkeypatch):
    """Ray that is interrupted while it starts hangs, or leaves its folder behind."""
    tape = []

    @contextlib.contextmanager
    def head(config):
        signal.raise_signal(signal.SIGINT)
        tape.append("started")
        try:
            yield "127.0.0.1:1", str
        finally:
            tape.append("ended")

    def join(address, stack):
        tape.append(f"joined {address}")
        stack.callback(tape.append, "left")

    monkeypatch.setattr(ray_session, "_head", head)
    monkeypatch.setattr(ray_session, "_join", join)
    session = ray_session.ray_session(None, make_config(tmp_path))
    with pytest.raises(KeyboardInterrupt), session:
        tape.append("the program runs")
    assert tape == ["started", "joined 127.0.0.1:1", "left", "ended"]


def test_the_log_says_who_can_connect(install):
    """A running cluster may have no token: that one is needed is said only of our own Ray."""
    install("2.60.0")
    own = EngineOptions(engine="ray")
    joined = dataclasses.replace(own, ray_address="here:1", listen_everywhere=True)
    (told,) = own.network("no namespace")
    assert "know the token" in told
    (told,) = joined.network("no namespace")
    assert "whoever can connect can execute code" in told
    install("2.48.0")
    with pytest.raises(ValueError, match="refuses it a private network namespace"):
        own.network("no namespace")
