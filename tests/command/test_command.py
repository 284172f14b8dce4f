"""The `retrax` command, end to end; and what it answers to wrong input."""

import dataclasses
import gc
import json
import os
import shutil
import sys
import threading
from unittest.mock import Mock

import numpy as np
import pytest
from fresh_python import start_retrax
from gymnasium.error import DependencyNotInstalled

from retrax import __version__
from retrax.agents import acer, reactor
from retrax.command import main as main_module
from retrax.command import train as train_module
from retrax.command.main import main
from retrax.command.training import Summary
from retrax.training.loop import Loop
from retrax.training.process import DirectoryLock
from retrax.training.recorder import MetricsTable
from retrax.training.run_config import RunConfig, read_config
from retrax.training.snapshots import read_state, write_state

CATCH = "train reactor --environment catch"
NOISY = "train noisy_agent:NOISY --environment catch"
DEVICE = "--on-device --environment"


@pytest.fixture
def parsed(monkeypatch, tmp_path):
    """The run that `train` is asked for, which is not trained: (resolved config, directory)."""
    asked = []

    def train_together(runs, *, environment, **options):
        ((directory, config),) = runs.items()
        asked.append((config.resolve(environment.spec), directory))
        environment.close()
        return [Summary(directory, 1, 0, 0.0, False)], True  # a signal came after its last step

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
    assert retrax("--version") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize("command", ["train", "launch"])
def test_help_without_an_agent_tells_both_forms(retrax, command):
    status, out, err = retrax(command, "--help")
    assert (status, err) == (0, "")
    assert f"retrax {command} AGENT --environment ID" in out
    assert f"retrax {command} --resume RUN" in out
    assert "acer, agent57, d4pg, reactor, or your own module:NAME" in out


@pytest.mark.parametrize("arguments", [f"{CATCH} --help", "evaluate --help", "plot --help"])
def test_help_fits_80_columns(capsys, monkeypatch, arguments):
    """But for docstrings, which are as they are written."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(arguments.split()) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_help_lists_fields_with_their_defaults(capsys):
    assert main([*CATCH.split(), "--help"]) == 0
    out = capsys.readouterr().out
    for name in ("--steps", "--agent.learning-rate", "--agent.replay.min-rows"):
        assert name in out
    assert "preset small_short." in out
    assert "0.001" in out  # the learning rate of `small`
    assert main(["train", "acer", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"preset {next(iter(acer.PRESETS))} (with --environment ID, the default preset" in out
    assert all(name in out for name in acer.PRESETS)


# What is asked for


SMALL, PAPER = reactor.Config.small, reactor.Config
UNIFORM = dataclasses.replace(SMALL().replay, selector="uniform")


@pytest.mark.parametrize(
    ("words", "steps", "config"),
    [
        ("catch", 20_000, reactor.PRESETS["small_short"]()),
        ("CartPole-v1 --agent.distributional False", 60_000, SMALL(distributional=False)),
        ("ALE/Pong-v5", 2_500_000, reactor.Config.atari_laptop()),
        ("catch --preset paper --steps 7 --agent.discount 0.5", 7, PAPER(discount=0.5)),
        ("Acrobot-v1 --steps 1e5 --agent.replay.selector uniform", 100_000, SMALL(replay=UNIFORM)),
    ],
)
def test_defaults_and_options_give_the_fields(parsed, tmp_path, capsys, words, steps, config):
    found, directory = parsed("train", "reactor", "--environment", *words.split())
    assert "Stopped by you" not in capsys.readouterr().err
    assert (found.steps, found.seed, found.agent_config) == (steps, 0, config)
    assert (directory.parent, os.listdir(tmp_path)) == (tmp_path / "runs", [])


# Wrong input


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("nonsense", "Unknown command 'nonsense': allowed are train, launch, evaluate, "),
        ("evalute", "Unknown command 'evalute' (did you mean evaluate?)"),
        ("train --agent x", "Name an agent (acer, agent57, d4pg, reactor, or module:NAME): retrax"),
        ("train reactr", "unknown agent 'reactr' (did you mean reactor?)"),
        ("train no_module:X", "module 'no_module' cannot be imported"),
        ("train reactor --environment cach", "'cach' (did you mean catch"),
        ("train reactor --environment ALE/Pongg-v5", "(did you mean ALE/Pong-v5"),
        ("train reactor --environment Pendulum-v1", "Reactor needs discrete actions"),
        (f"{CATCH} --steps 0", ">= 1 and <= 1000000000000 or None, got 0."),
        (f"{CATCH} --preset smal", "Unknown preset 'smal' of reactor (did you mean small?)"),
        (f"{CATCH} --agent.replay.capacity 10000000000", "A replay of 10000000000 rows needs"),
        (f"{CATCH} --agent.replay.capacity 600 --num-envs 60", "but a sequence needs 17"),
        (
            "train reactor --environment ALE/Pong-v5 --agent.convolutions 8 85 1",
            "a side of 84 pixels is too small",
        ),
        ("train --resume nothing", "nothing is not a run directory"),
        ("reactor --environment catch", "(did you mean train reactor?)"),
        ("evaluate nothing=", "nothing= is not a run directory"),
        ("evaluate nothing --episodes 0", "--episodes must be an integer >= 1, got 0."),
        ("plot", "no run directories were given"),
        ("plot nothing", "nothing is not a run directory"),
        (f"{NOISY} --seeds 0", "--seeds must be an integer >= 1, got 0."),
        (f"{NOISY} --seeds 2 --seed 4294967295", "RunConfig.seed must be an integer"),
        (f"{NOISY} --seeds 2 --agent.replay.capacity 3 --agent.replay.min-rows 3", "capacity"),
        (
            f"train noisy_agent:NOISY {DEVICE} catch --seeds 2 --logger json:dumps",
            "--logger must be None with --seeds on a device",
        ),
        (f"train noisy_agent:NOISY {DEVICE} Acrobot-v1", "Acrobot-v1 is not an environment"),
        (f"train reactor {DEVICE} catch", "replay.selector is uniform or proportional"),
        (f"train noisy_agent:NOISY {DEVICE} pgx:chess", "pgx"),
        (f"{NOISY} --on-device --agent.replay.capacity 100000000000", "A replay of 100000000000 r"),
        ("benchmark atari6 acer", "There is no suite 'atari6': allowed are atari, atari5, bsuite"),
        ("benchmark classic acer --tasks cart", "no task 'cart': it has cart-pole, acrobot"),
        ("benchmark classic d4pg --tasks acrobot", "d4pg cannot act in any of the tasks: "),
        ("benchmark bsuite acer --num-envs 2", "--num-envs must be 1 in bsuite, which scores"),
        ("train reactor", "Missing from retrax train reactor: --environment STR catch, a Gymnasiu"),
        ("train acer --environment=", "An argument is empty: '--environment='."),
        (f"{CATCH} --agent.sequence-length 200000", "ReplayConfig.capacity must be an integer >= "),
        ("train --resume", "Missing value for argument '--resume'"),
        ("evaluate", "Missing from retrax evaluate: RUN The run directory"),
        ("atari57 --algorithms raibow", "did you mean rainbow?"),
        ("atari57 --regime sticky", "human_start"),
        ("doctor more", "Unrecognized options: more"),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(
    retrax, tmp_path, monkeypatch, arguments, sentence
):
    """Or it is tyro's message, which names the option."""
    monkeypatch.chdir(tmp_path)
    status, out, err = retrax(*arguments.split())
    assert (status, out) == (2, "")
    *left_out, last = err.splitlines()
    if last.startswith("╰"):
        assert sentence in " ".join(err.replace("│", " ").split())
    else:
        assert last.startswith("retrax: ")
        assert sentence in last
        assert all(" is skipped: " in line for line in left_out)
    assert os.listdir(tmp_path) == []


def test_a_device_that_is_not_there(tmp_path):
    environment = {**os.environ, "JAX_PLATFORMS": "cuda"}
    process = start_retrax(*CATCH.split(), env=environment, cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1), err
    assert "JAX has no device with JAX_PLATFORMS='cuda' (" in err
    assert list(tmp_path.iterdir()) == []


def test_missing_libraries_are_told_and_our_own_errors_keep_their_traceback(refused, monkeypatch):
    errors = [DependencyNotInstalled("Box2D is not installed"), AttributeError("ours")]
    monkeypatch.setattr(RunConfig, "make_environment", Mock(side_effect=errors))
    assert refused(*CATCH.split()) == "retrax: Box2D is not installed\n"
    with pytest.raises(AttributeError, match="ours"):
        main(CATCH.split())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--seed", 3), "{run} holds a run with another config (seed: 0 -> 3): choose another"),
        ((), "{run} holds this run already: retrax train --resume {run}"),
        (("--run-directory", "{run}/snapshots"), "is not empty, and holds no run"),
        (("--run-directory", "{run}/log.txt"), "is a file"),
        (("--seeds", 2), "{run} holds this run already: retrax train --resume {run}"),
    ],
)
def test_directories_that_are_in_use(run, tiny, refused, monkeypatch, options, sentence):
    monkeypatch.chdir(read_config(run).search_path)  # which is a part of the config
    words = [str(word).format(run=run) for word in options]
    assert sentence.format(run=run) in refused(*tiny, "--run-directory", run, *words)


def test_a_directory_that_another_process_writes_into(run, tiny, retrax, refused):
    (run / "metrics.csv").unlink()  # so that a lock that comes too late is noticed
    with DirectoryLock(run):
        sentence = f"retrax: {run} is in use by process {os.getpid()}, which writes into it: "
        for arguments in (
            ["train", "--resume", run, "--steps", 400],
            [*tiny, "--run-directory", run],
            [*tiny, "--seed", 3, "--run-directory", run],
        ):
            assert refused(*arguments).startswith(sentence)
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
    ("options", "sentence"),
    [
        (
            "--seed 3",
            "--seed cannot be given: a resumed run keeps its config, except for "
            "--steps, --learner-devices, --logger.",
        ),
        ("--agent.learning_rate=1", "--agent.learning-rate cannot be given"),
        ("--seeds 3 --plian", "--seeds cannot be given"),
        ("--num-workers 3", "--num-workers cannot be given"),
        ("--run-directory x", "--run-directory cannot be given"),
        ("", "{run} is at 240 steps already: to continue, give more steps than that"),
        ("--steps 0", "--steps must be an integer >= 1 and <= 1000000000000 or None, got 0."),
    ],
)
def test_a_resumed_run_keeps_its_config(run, refused, options, sentence):
    assert sentence.format(run=run) in refused("train", "--resume", run, *options.split())
    assert "noisy_agent:NOISY, got acer." in refused("train", "acer", "--resume", run)


def test_help_of_a_resumed_run(run, capsys):
    assert main(["train", "--resume", str(run), "--help"]) == 0
    out = capsys.readouterr().out
    assert "--steps {None}|INT" in out
    assert "(default: 240)" in out
    assert "--seed" not in out
    assert main(["train", "--resume", str(run), "--plian"]) == 2
    assert "Perhaps you meant" in capsys.readouterr().err


def replace(run, old, new):
    text = (run / "config.json").read_text()
    assert text.count(old) == 1
    (run / "config.json").write_text(text.replace(old, new))


def cut(*paths):
    for path in paths:
        path.write_bytes(path.read_bytes()[:-3])


def other_replay(run):
    path = run / "snapshots" / "240.npz"
    write_state(path, {**read_state(path), "replay": {"rows": np.zeros(3)}})


def rename(run):
    (run / "snapshots" / "240.npz").rename(run / "snapshots" / "250.npz")


UNIFORM = ('"selector": "proportional"', '"selector": "uniform"')
NO_RATE = ('"rate": 0.0078125,', "")
LONGER = ('"sequence_length": 4', '"sequence_length": 5')
DAMAGED = "{run}/config.json is damaged or of another version"
NO_OLDER = "no older one is intact, and the run must be trained again in "
MISFIT = "{run}/snapshots/240.npz is of another agent, config or version"


@pytest.mark.parametrize(
    ("damage", "trained", "evaluated"),
    [
        (lambda run: (run / "config.json").unlink(), *["is not a run directory"] * 2),
        (lambda run: cut(run / "config.json"), *[DAMAGED] * 2),
        (lambda run: replace(run, *NO_RATE), *["retrax: agent_config.rate is missing."] * 2),
        (lambda run: shutil.rmtree(run / "snapshots"), None, "--resume starts from the beginning"),
        (lambda run: cut(*(run / "snapshots").iterdir()), NO_OLDER, "damaged"),
        (rename, "(its counters are those at 240 steps)", "at 240 steps"),
        (lambda run: replace(run, *UNIFORM), "selector proportional, but the config", None),
        (lambda run: replace(run, *LONGER), "rows have length 4, but the config has 5", None),
        (lambda run: replace(run, *UNIFORM), MISFIT, None),
        (lambda run: replace(run, '"size": 2', '"size": 3'), MISFIT, MISFIT),
        (other_replay, MISFIT, None),
    ],
)
def test_damaged_runs(run, refused, damage, trained, evaluated):
    """Neither continued nor evaluated; None where nothing is wrong for one of them."""
    damage(run)
    for command, sentence in (
        (("train", "--steps", "400", "--resume", run), trained),
        (("evaluate", run, "--episodes", "1"), evaluated),
    ):
        if sentence is not None:
            assert sentence.format(run=run) in refused(*command)


# End to end


def test_evaluate(finished, retrax):
    status, out, err = retrax("evaluate", finished, "--episodes", 20, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    numbers = {"mean_return", "low", "high", "episodes", "steps", "mean_length"}
    assert found.keys() == {*numbers, "modes", "metrics", "policy"}
    assert (found["episodes"], found["steps"], found["mean_length"]) == (20, 240, 9.0)
    assert found["metrics"] == {}  # it has none
    assert -1 <= found["low"] <= found["mean_return"] <= found["high"] <= 1
    assert retrax("evaluate", finished, "--episodes", 20, "--json") == (0, out, "")

    status, out, err = retrax("evaluate", finished, "--episodes", 20)
    assert (status, err) == (0, "")
    assert out.startswith(f"mean return {found['mean_return']:.6g} (95 %: ")
    first, policy, *modes = out.splitlines()
    assert policy == f"policy: {found['policy']}"
    assert found["policy"].startswith("random, with ")
    assert first.endswith("over 20 episodes of 9 steps, after 240 steps of training")
    assert [line.split(":")[0] for line in modes] == ["warm", "lucky"]


def test_one_episode_has_no_interval_and_json_no_nan(run, retrax, contents):
    before = contents(run)
    status, out, _ = retrax("evaluate", run, "--episodes", 1, "--json")
    assert (status, "NaN" in out, json.loads(out)["low"]) == (0, False, None)
    for episodes, words in ((1, "1 episode"), (9, "9 episodes")):
        _, out, _ = retrax("evaluate", run, "--episodes", episodes)
        assert f"(no interval: it needs at least 10 episodes) over {words} of 9 steps," in out
    assert contents(run) == before  # no evaluation changes a run
    seeds = {retrax("evaluate", run, "--episodes", 20, "--seed", seed)[1] for seed in range(3)}
    assert len(seeds) > 1


def test_ctrl_c_in_a_callback_of_the_garbage_collector_is_not_lost(monkeypatch):
    def interrupted(phase, info):
        gc.callbacks.remove(interrupted)
        raise KeyboardInterrupt

    repeated = threading.Event()  # SIGINT itself may be ignored, as in background jobs
    monkeypatch.setattr(main_module._thread, "interrupt_main", repeated.set)
    monkeypatch.setattr(sys, "unraisablehook", main_module._repeat)
    gc.callbacks.append(interrupted)
    gc.collect()
    assert repeated.wait(10)


def test_a_closed_pipe_is_no_error():
    help_ = start_retrax("train", "reactor", "--help")
    help_.stdout.close()
    assert help_.wait(timeout=120) == 141
    assert help_.stderr.read() == ""
    help_.stderr.close()
