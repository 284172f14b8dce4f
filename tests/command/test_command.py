"""The `retrax` command, end to end; and what it answers to wrong input."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from retrax import __version__
from retrax.agents import acer, reactor
from retrax.command import train as train_module
from retrax.command.main import main
from retrax.command.training import Summary
from retrax.training.directory_lock import DirectoryLock
from retrax.training.loop import Loop
from retrax.training.metrics_writer import MetricsTable
from retrax.training.run_config import RunConfig
from retrax.training.state_file import read_state, write_state

CATCH = "train reactor --environment catch"


@pytest.fixture
def parsed(monkeypatch, tmp_path):
    """The run that `train` is asked for, which is not trained: (resolved config, directory)."""
    asked = []

    def train_together(runs, *, environment, **options):
        ((directory, config),) = runs.items()
        asked.append((config.resolve(environment.spec), directory))
        environment.close()
        return [Summary(directory, 1, 0, 0.0, False)], False

    monkeypatch.setattr(train_module, "train_together", train_together)
    monkeypatch.chdir(tmp_path)

    def parse(*arguments):
        assert main(list(arguments)) == 0
        return asked.pop()

    return parse


# Looking


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_usage(retrax, arguments):
    status, out, err = retrax(*arguments)
    assert (status, err) == (0, "")
    for command in ("train", "evaluate", "plot", "doctor"):
        assert f"  {command}" in out


def test_version(retrax):
    assert retrax("--version") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize("command", ["train", "launch"])
def test_help_without_an_agent_tells_both_forms(capsys, command):
    assert main([command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"retrax {command} AGENT --environment ID" in out
    assert f"retrax {command} --resume RUN" in out
    assert "acer, agent57, d4pg, reactor, or module:NAME" in out


@pytest.mark.parametrize(
    "arguments",
    [
        "train reactor --help",
        f"{CATCH} --help",
        "evaluate --help",
        "plot --help",
        "doctor --help",
    ],
)
def test_help_fits_80_columns(capsys, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(arguments.split()) == 0
    out = capsys.readouterr().out
    # Docstrings of commands are given as they are, and may be a little longer.
    assert max(map(len, out.splitlines())) <= 100
    assert "{None}" not in out


def test_help_lists_every_field_with_its_default(capsys):
    assert main([*CATCH.split(), "--help"]) == 0
    out, config = capsys.readouterr().out, reactor.Config.small()
    for field in dataclasses.fields(config):
        assert f"--agent.{field.name.replace('_', '-')}" in out
    for field in dataclasses.fields(config.replay):
        assert f"--agent.replay.{field.name.replace('_', '-')}" in out
    assert "preset small" in out
    assert "0.001" in out  # the learning rate of `small`
    assert "the first; an --environment ID" not in out


def test_help_without_an_environment_says_of_which_preset_it_is(capsys):
    assert main(["train", "acer", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"preset {next(iter(acer.PRESETS))}, the first; an --environment ID has its own." in out


# What is asked for


@pytest.mark.parametrize(
    ("environment", "preset", "steps"),
    [("catch", "small", 20_000), ("CartPole-v1", "small", 60_000), ("ALE/Pong-v5", "paper", 5e7)],
)
def test_defaults(parsed, tmp_path, environment, preset, steps):
    config, directory = parsed("train", "reactor", "--environment", environment)
    assert (config.preset, config.steps, config.seed) == (preset, steps, 0)
    assert config.agent_config == reactor.PRESETS[preset]()
    assert directory.parent == tmp_path / "runs"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("arguments", [("--preset", "paper"), ("--preset=paper",)])
def test_preset_gives_the_fields(parsed, arguments):
    config, _ = parsed(*CATCH.split(), *arguments, "--agent.discount", "0.5")
    assert config.agent_config == reactor.Config.paper(discount=0.5)


def test_environment_after_an_equals_sign(parsed):
    config, _ = parsed("train", "reactor", "--environment=catch", "--steps=7")
    assert (config.environment, config.preset, config.steps) == ("catch", "small", 7)


def test_fields_by_either_spelling(parsed):
    for option in ("--agent.learning-rate", "--agent.learning_rate"):
        config, _ = parsed(*CATCH.split(), option, "0.5")
        assert config.agent_config.learning_rate == 0.5


def test_switches_and_nested_fields(parsed):
    words = "--agent.distributional False --agent.replay.selector uniform --agent.vector-sizes 3 4"
    config, _ = parsed(*f"{CATCH} {words}".split())
    assert config.agent_config.distributional is False
    assert config.agent_config.replay.selector == "uniform"
    assert config.agent_config.replay.batch_size == reactor.Config.small().replay.batch_size
    assert config.agent_config.vector_sizes == (3, 4)


# Wrong input


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("nonsense", "Unknown command 'nonsense': allowed are train, launch, evaluate, "),
        ("evalute", "Unknown command 'evalute' (did you mean evaluate?)"),
        ("train", "needs an agent first (acer, agent57, d4pg, reactor, or module:NAME)"),
        (
            "train --environment catch",
            "needs an agent first (acer, agent57, d4pg, reactor, or module:NAME)",
        ),
        ("train --agent reactor --environment catch", "needs an agent first (acer,"),
        ("train reactr", "unknown agent 'reactr' (did you mean reactor?)"),
        ("train no_module:X", "module 'no_module' cannot be imported"),
        ("train reactor --environment cach", "'cach' (did you mean catch"),
        ("train reactor --environment CartPole", "(did you mean CartPole-v1"),
        ("train reactor --environment ALE/Pongg-v5", "(did you mean ALE/Pong-v5"),
        ("train reactor --environment no_module:X-v0", "module 'no_module' cannot be imported"),
        ("train reactor --environment Pendulum-v1", "Reactor needs discrete actions"),
        ("train d4pg --environment Blackjack-v1", "D4PG needs continuous actions"),
        (f"{CATCH} --steps 0", "steps must be an integer >= 1 or None, got 0."),
        (f"{CATCH} --preset smal", "Unknown preset 'smal' of reactor (did you mean small?)"),
        (f"{CATCH} --agent.replay.capacity 10000000000", "A replay of 10000000000 rows needs"),
        (f"{CATCH} --agent.replay.capacity 600 --num-envs 60", "but a sequence needs 17"),
        (
            "train reactor --environment ALE/Pong-v5 --agent.convolutions 8 85 1",
            "a side of 84 pixels is too small",
        ),
        ("train --resume nothing", "nothing is not a run directory"),
        ("train reactor --resume nothing", "nothing is not a run directory"),
        ("reactor --environment catch", "(did you mean train reactor?)"),
        ("evaluate nothing", "nothing is not a run directory"),
        ("evaluate nothing --episodes 0", "--episodes must be an integer >= 1, got 0."),
        ("evaluate nothing --seed -1", "--seed must be an integer >= 0, got -1."),
        ("plot", "no run directories were given"),
        ("plot nothing", "nothing is not a run directory"),
        ("plot nothing --output x.pdf", "x.pdf must end in .png"),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(
    retrax, tmp_path, monkeypatch, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    status, out, err = retrax(*arguments.split())
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.startswith("retrax: ")
    assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "train reactor",
            "Missing from retrax train reactor: --environment STR catch, a Gymnasium",
        ),
        ("train reactor --environment", "Missing value for argument '--environment'"),
        ("train acer catch", "Unrecognized options: catch"),
        (f"{CATCH} --foo 1", "Unrecognized options: --foo"),
        (f"{CATCH} --agent.learning-rate -1", "must be a number > 0.0 and <= 1.0, got -1.0"),
        (
            f"{CATCH} --agent.sequence-length 200000",
            "ReplayConfig.capacity must hold one sequence of 200000 rows, got 100000.",
        ),
        (
            "train agent57 --environment catch --agent.burn-in 10000000",
            "ReplayConfig.capacity must hold one sequence of 10000",
        ),
        ("train --resume", "Missing value for argument '--resume'"),
        ("evaluate", "Missing from retrax evaluate: RUN The run directory"),
        ("doctor more", "Unrecognized options: more"),
    ],
)
def test_arguments_that_tyro_refuses_write_nothing(
    retrax, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    status, out, err = retrax(*arguments.split())
    assert (status, out) == (2, "")
    assert message in " ".join(err.replace("│", " ").split())
    assert os.listdir(tmp_path) == []


def test_an_environment_that_lacks_a_library(retrax, tmp_path, monkeypatch):
    from gymnasium.error import DependencyNotInstalled

    def make(*arguments, **options):
        raise DependencyNotInstalled("Box2D is not installed")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RunConfig, "make_environment", make)
    assert retrax(*CATCH.split()) == (2, "", "retrax: Box2D is not installed\n")


def test_errors_in_the_library_keep_their_traceback(monkeypatch):
    def make(*arguments, **options):
        raise AttributeError("ours")

    monkeypatch.setattr(RunConfig, "make_environment", make)
    with pytest.raises(AttributeError, match="ours"):
        main(CATCH.split())


def refused(retrax, contents, directory, *arguments):
    """The sentence; the directory must not have changed."""
    before = contents(directory)
    status, out, err = retrax(*arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert contents(directory) == before
    return err


def test_directory_with_another_config(run, tiny, retrax, contents):
    err = refused(retrax, contents, run, *tiny, "--seed", 3, "--run-directory", run)
    assert f"{run} holds a run with another config (seed: 0 -> 3): choose another" in err


def test_directory_with_the_same_config(run, tiny, retrax, contents):
    err = refused(retrax, contents, run, *tiny, "--run-directory", run)
    assert f"holds this run already: retrax train --resume {run}" in err


def test_directory_with_other_things(tmp_path, tiny, retrax, contents):
    (tmp_path / "thesis.txt").write_text("years of work")
    err = refused(retrax, contents, tmp_path, *tiny, "--run-directory", tmp_path)
    assert "is not empty, and holds no run" in err
    file = tmp_path / "thesis.txt"
    err = refused(retrax, contents, tmp_path, *tiny, "--run-directory", file)
    assert "is a file" in err


def test_a_directory_that_another_process_writes_into(run, tiny, retrax, contents):
    (run / "metrics.csv").unlink()  # so that a lock that comes too late is noticed
    with DirectoryLock(run):
        sentence = f"retrax: {run} is in use by process {os.getpid()}, which writes into it: "
        for arguments in (
            ["train", "--resume", run, "--steps", 400],
            [*tiny, "--run-directory", run],
            [*tiny, "--seed", 3, "--run-directory", run],
        ):
            assert refused(retrax, contents, run, *arguments).startswith(sentence)
        assert retrax("evaluate", run, "--episodes", 2)[0] == 0


def test_a_run_holds_its_directory_from_its_first_file_to_its_last(
    tiny, retrax, tmp_path, monkeypatch
):
    directory, seen = tmp_path / "run", []
    close, flush = MetricsTable.close, Loop.flush

    def watch(method):
        def watched(*arguments):
            with pytest.raises(ValueError, match=f"in use by process {os.getpid()}"):
                DirectoryLock(directory)
            seen.append(method.__name__)
            return method(*arguments)

        return watched

    monkeypatch.setattr(MetricsTable, "close", watch(close))
    monkeypatch.setattr(Loop, "flush", watch(flush))
    assert retrax(*tiny, "--run-directory", directory)[0] == 0
    assert seen == ["flush"] * 6 + ["close"]
    with DirectoryLock(directory):
        pass


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--seed", 3),
            "--seed cannot be changed: a run that is resumed keeps its config, except for "
            "--steps, --learner-devices and --logger.",
        ),
        (("--agent.learning_rate=1",), "--agent.learning-rate cannot be changed"),
        (("--num-workers", 3), "--num-workers cannot be changed"),
        (("--run-directory", "x"), "--run-directory cannot be changed"),
    ],
)
def test_a_resumed_run_keeps_its_config(run, retrax, contents, arguments, sentence):
    assert sentence in refused(retrax, contents, run, "train", "--resume", run, *arguments)


def test_help_of_a_resumed_run(run, capsys):
    assert main(["train", "--resume", str(run), "--help"]) == 0
    out = capsys.readouterr().out
    assert "--steps INT|None" in out
    assert "(default: 240)" in out
    assert "--seed" not in out


def test_resume_with_too_few_steps(run, retrax, contents):
    for arguments in ((), ("--steps", 240), ("--steps", 10)):
        err = refused(retrax, contents, run, "train", "--resume", run, *arguments)
        assert f"{run} is at 240 steps already: to continue, give more steps than that" in err
    err = refused(retrax, contents, run, "train", "--resume", run, "--steps", 0)
    assert "--steps must be an integer >= 1 or None, got 0." in err


@pytest.mark.parametrize(
    "command", [("train", "--steps", "400", "--resume"), ("evaluate", "--episodes", "1")]
)
class TestDamage:
    def test_no_config(self, run, retrax, contents, command):
        (run / "config.json").unlink()
        assert "is not a run directory" in refused(retrax, contents, run, *command, run)

    def test_damaged_config(self, run, retrax, contents, command):
        text = (run / "config.json").read_text()
        (run / "config.json").write_text(text[: len(text) // 2])
        err = refused(retrax, contents, run, *command, run)
        assert f"{run / 'config.json'} is damaged or of another version" in err


def test_evaluate_without_a_snapshot(run, retrax, contents):
    shutil.rmtree(run / "snapshots")
    err = refused(retrax, contents, run, "evaluate", run, "--episodes", "1")
    assert "holds no complete snapshot" in err
    assert "--resume starts from the beginning" in err


def test_no_snapshot_is_whole(run, retrax, contents):
    for path in (run / "snapshots").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    err = refused(retrax, contents, run, "train", "--resume", run)
    assert "no older one is whole, and the run must be trained again in another directory" in err


def test_a_field_that_was_removed_is_not_guessed(run, retrax, contents):
    values = json.loads((run / "config.json").read_text())
    del values["agent_config"]["rate"]
    (run / "config.json").write_text(json.dumps(values))
    err = refused(retrax, contents, run, "train", "--resume", run, "--steps", 400)
    assert err.endswith("retrax: agent_config.rate is missing.\n")


def test_a_snapshot_whose_counters_contradict_its_folder(run, retrax, contents):
    (run / "snapshots" / "240.npz").rename(run / "snapshots" / "250.npz")
    err = refused(retrax, contents, run, "train", "--resume", run, "--steps", 400)
    assert f"{run / 'snapshots' / '250.npz'} is of another agent, config or version" in err
    assert "(its counters are those at 240 steps)" in err
    assert "at 240 steps" in refused(retrax, contents, run, "evaluate", run)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            '"selector": "proportional"',
            '"selector": "uniform"',
            "selector proportional, and the config",
        ),
        (
            '"sequence_length": 4',
            '"sequence_length": 5',
            "rows have length 4, and the config has 5",
        ),
    ],
)
def test_rows_that_were_stored_in_another_way(run, retrax, contents, old, new, sentence):
    text = (run / "config.json").read_text()
    assert text.count(old) == 1
    (run / "config.json").write_text(text.replace(old, new))
    err = refused(retrax, contents, run, "train", "--resume", run, "--steps", 400)
    assert sentence in err
    assert f"{run / 'snapshots' / '240.npz'} is of another agent, config or version" in err


def test_snapshot_of_another_config(run, retrax, contents):
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace('"size": 2', '"size": 3'))
    err = refused(retrax, contents, run, "evaluate", run)
    assert "is of another agent, config or version" in err


def test_resume_with_another_replay(run, retrax, contents):
    path = run / "snapshots" / "240.npz"
    parts = {**read_state(path), "replay": {"rows": np.zeros(3)}}
    write_state(path, parts)
    err = refused(retrax, contents, run, "train", "--resume", run, "--steps", 400)
    assert f"{path} is of another agent, config or version" in err


# End to end


def test_train_evaluate_plot(run, retrax, tmp_path):
    status, out, err = retrax("evaluate", run, "--episodes", 20, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    numbers = {"mean_return", "low", "high", "episodes", "steps", "mean_length"}
    assert found.keys() == {*numbers, "modes", "metrics", "policy"}
    assert (found["episodes"], found["steps"], found["mean_length"]) == (20, 240, 9.0)
    assert found["metrics"] == {}  # it has none
    assert -1 <= found["low"] <= found["mean_return"] <= found["high"] <= 1
    assert retrax("evaluate", run, "--episodes", 20, "--json") == (0, out, "")

    status, out, err = retrax("evaluate", run, "--episodes", 20)
    assert (status, err) == (0, "")
    assert out.startswith(f"mean return {found['mean_return']:.6g} (95 %: ")
    first, policy, *modes = out.splitlines()
    assert policy == f"policy: {found['policy']}"
    assert found["policy"].startswith("random, with ")
    assert first.endswith("over 20 episodes of 9 steps, after 240 steps of training")
    assert [line.split(":")[0] for line in modes] == ["warm", "lucky"]

    status, out, err = retrax("plot", run, "--output", tmp_path / "curves.png", "--window", 2)
    assert (status, out, err) == (0, f"{tmp_path / 'curves.png'}\n", "")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")

    status, out, _ = retrax("train", "--resume", run, "--steps", 280)
    assert status == 0
    assert out == f"Run in {run}. Next: retrax evaluate {run}  |  retrax plot {run}\n"
    _, out, _ = retrax("evaluate", run, "--episodes", 2, "--json")
    assert json.loads(out)["steps"] == 280


def test_no_snapshot_was_evaluated(run, retrax, contents):
    err = refused(retrax, contents, run, "evaluate", run, "--snapshot", "best")
    assert "no snapshot of an evaluation (--evaluate-every): allowed are newest, 160, 240." in err


def test_one_episode_has_no_interval_and_json_no_nan(run, retrax):
    status, out, _ = retrax("evaluate", run, "--episodes", 1, "--json")
    assert status == 0
    assert "NaN" not in out
    assert json.loads(out)["low"] is None
    _, out, _ = retrax("evaluate", run, "--episodes", 1)
    assert "(no interval: it takes 10 episodes) over 1 episode of 9 steps," in out
    _, out, _ = retrax("evaluate", run, "--episodes", 9)
    assert "(no interval: it takes 10 episodes) over 9 episodes of 9 steps," in out


def test_evaluation_changes_no_run(run, retrax, contents):
    before = contents(run)
    assert retrax("evaluate", run, "--episodes", 1)[0] == 0
    assert contents(run) == before


def test_other_seeds_are_other_episodes(run, retrax):
    outputs = {retrax("evaluate", run, "--episodes", 50, "--seed", seed)[1] for seed in range(3)}
    assert len(outputs) > 1


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_video(run, retrax, tmp_path, suffix):
    imageio = pytest.importorskip("imageio.v3")
    pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / f"catch{suffix}"
    status, out, err = retrax("evaluate", run, "--episodes", 2, "--video", path)
    assert (status, err) == (0, "")
    assert out.endswith(f"video in {path}\n")
    with path.open("rb") as file:
        assert file.read(16)[:3] == b"GIF" if suffix == ".gif" else b"ftyp"
    if suffix == ".gif":
        frames = imageio.imread(path)
        assert frames.shape == (20, 480, 240, 3)  # three times the size
        assert np.ptp(frames) > 0


def test_wrong_video_leaves_nothing(run, retrax, contents, tmp_path):
    err = refused(
        retrax, contents, tmp_path, "evaluate", run, "--episodes", 1, "--video", tmp_path / "x.avi"
    )
    assert "must end in .mp4 or .gif" in err


def test_a_closed_pipe_is_no_error():
    program = "from retrax.command.main import main; exit(main())"
    help_ = subprocess.Popen(
        [sys.executable, "-c", program, "train", "reactor", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    help_.stdout.close()
    assert help_.wait(timeout=120) == 141
    assert help_.stderr.read() == ""
    help_.stderr.close()
