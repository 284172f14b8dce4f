"""A run with its files: repeatable, resumable, and stopped without loss."""

import contextlib
import dataclasses
import functools
import itertools
import logging
import re
import shutil
import signal
import time
from unittest.mock import Mock

import gymnasium
import noisy_agent
import numpy as np
import pytest
from fresh_python import start_retrax
from run_files import check_equal, rows, snapshots, stop_with

from retrax import load_metrics, train
from retrax.command.main import main
from retrax.environments import make
from retrax.replay.interface import REAL
from retrax.training.loop import Loop
from retrax.training.run_config import RunConfig, WorkerOptions, read_config
from retrax.training.snapshots import BestParameters, SnapshotInterval, Snapshots
from retrax.training.workers import DROPPED


def make_config(**changes):
    """The run of `tiny`."""
    return RunConfig(
        agent="noisy_agent:NOISY",
        environment="catch",
        num_envs=4,
        steps=240,
        snapshot_every=80,
        log_every=40,
        **{"evaluate_every": 0, **changes},
    )


def test_a_finished_run(finished):
    """Its files, its rows and snapshots at intervals and at the end, and its log."""
    names = {path.name for path in finished.iterdir()}
    assert {"config.json", "metrics.csv", "log.txt", "snapshots"} < names
    assert sum(name.startswith("events.out.tfevents.") for name in names) == 1
    assert len(names) == 5
    assert snapshots(finished) == [160, 240]
    assert [int(row["steps"]) for row in rows(finished)] == [40, 80, 120, 160, 200, 240]
    text = (finished / "log.txt").read_text()
    assert "noisy_agent:NOISY on catch, preset default, 240 steps, seed 0, 4 environments" in text
    assert "Replay: 80 rows take" in text
    assert "with 3 discrete actions: the default preset of noisy for them is default." in text
    assert "steps/s, learning" in text
    assert re.search(r"Finished at 240 steps and \d+ updates, on average [\d.]+ steps/s and", text)
    assert "wait for compilation" in text


def test_an_agents_advice_is_logged_once(tiny, retrax, tmp_path, monkeypatch):
    advice = "A sentence of the agent."
    advised = dataclasses.replace(noisy_agent.NOISY, advice=lambda config, metrics: advice)
    monkeypatch.setattr(noisy_agent, "NOISY", advised)
    status, _, err = retrax(*tiny, "--run-directory", tmp_path / "run")
    assert status == 0
    assert err.count(advice) == (tmp_path / "run" / "log.txt").read_text().count(advice) == 1


def test_a_terminal_has_a_bar(tiny, retrax, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then believes in a terminal
    status, _, err = retrax(*tiny, "--run-directory", tmp_path / "run")
    assert (status, "240/240 steps, " in err) == (0, True)


def test_a_damaged_snapshot_is_not_evaluated_and_a_resumed_run_goes_back(run, finished, retrax):
    path = run / "snapshots" / "240.npz"
    path.write_bytes(path.read_bytes()[:20])
    status, _, err = retrax("evaluate", run, "--episodes", "1")
    assert status == 2
    assert f"The snapshot at 240 steps is damaged ({path} is not what was written" in err
    assert "the newest intact older one is at 160 steps" in err
    status, _, err = retrax("train", "--resume", run)
    assert status == 0
    sentence = "going back to the one at 160 steps."
    assert err.count(sentence) == (run / "log.txt").read_text().count(sentence) == 1
    assert "Resumed at 160 steps." in err
    assert retrax("evaluate", run, "--episodes", "1")[0] == 0
    assert snapshots(run) == [160, 240]
    assert len(rows(run)) == len(rows(finished))


def test_a_run_without_a_snapshot_starts_from_the_beginning(finished, run, tiny, retrax):
    """As after a kill before the first one; what was the best before is forgotten."""
    shutil.rmtree(run / "snapshots")
    BestParameters(run).offer((), mean_return=9.0, steps=1)
    status, _, err = retrax(*tiny, "--run-directory", run)
    assert status == 2
    assert f"retrax train --resume {run}" in err
    status, _, err = retrax("train", "--resume", run)
    assert status == 0
    sentence = f"{run} holds no snapshot yet: the run starts from the beginning."
    assert err.count(sentence) == (run / "log.txt").read_text().count(sentence) == 1
    assert rows(run) == rows(finished)
    assert not BestParameters(run).exists


def test_a_loop_over_runs_can_be_interrupted(tmp_path, monkeypatch):
    config = make_config()
    with monkeypatch.context() as patch:
        stop_with(patch, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "run", plain=True, raise_interrupt=True)
    assert snapshots(tmp_path / "run") == [80, 100]
    summary, options = None, {"resume": True, "plain": True, "raise_interrupt": True}
    with contextlib.suppress(KeyboardInterrupt):  # which would end pytest
        summary = train(config, tmp_path / "run", on_metrics=lambda n, _: n == 200, **options)
    assert (summary.steps, summary.interrupted) == (200, True)  # a function raises nothing


def test_a_function_gets_each_row_and_stops_the_run(finished, tmp_path):
    got = {}

    def on_metrics(steps, metrics):
        got[steps] = metrics
        return steps == 120

    directory, config = tmp_path / "run", make_config(evaluate_every=80)
    summary = train(config, directory, plain=True, on_metrics=on_metrics)
    assert (summary.steps, summary.interrupted) == (120, True)
    assert summary.best_evaluation == pytest.approx(got[80]["evaluation_return"])
    columns = load_metrics(directory)
    assert [*got] == [*columns.pop("steps")] == [40, 80, 120]
    for index, row in enumerate(got.values()):
        found = {name: values[index] for name, values in columns.items()}
        assert row == pytest.approx({k: v for k, v in found.items() if not np.isnan(v)}, rel=1e-6)
    with pytest.raises(ValueError, match=r"a run with another config \(seed: 0 -> 7\): choose"):
        train(dataclasses.replace(config, seed=7), directory, resume=True, plain=True)
    train(config, directory, resume=True, plain=True, on_metrics=on_metrics)
    assert [*got] == [40, 80, 120, 160, 200, 240]
    assert [row.get("episode_return") for row in got.values()] == [
        float(row["episode_return"]) if row["episode_return"] else None for row in rows(finished)
    ]


def test_snapshots_by_time_change_nothing(finished, tmp_path, monkeypatch):
    saved, save = [], Snapshots.save

    def watched(self, steps, *rest, **options):
        saved.append(steps)
        save(self, steps, *rest, **options)

    monkeypatch.setattr(Snapshots, "save", watched)
    minutes = REAL._replace(monotonic=itertools.count(0.0, 60.0).__next__)
    interval = functools.partial(SnapshotInterval, clock=minutes)
    monkeypatch.setattr("retrax.command.training.SnapshotInterval", interval)
    train(make_config(), tmp_path / "run", plain=True)
    assert saved[0] == 36  # after ten minutes, of which the first has no transitions
    assert len(saved) > 4
    check_equal(tmp_path / "run", finished)


def test_a_failure_is_one_sentence_with_the_traceback_in_the_log(
    tiny, retrax, tmp_path, monkeypatch
):
    directory = tmp_path / "run"
    status, out, err = retrax(*tiny, "--agent.rate", "1e38", "--run-directory", directory)
    assert (status, out) == (1, "")
    last = err.splitlines()[-1]
    assert last.startswith("retrax: The run failed at ")
    assert "the learner diverged" in last
    assert last.endswith(f"(traceback in {directory / 'log.txt'}).")
    assert "Traceback" not in err
    assert "Traceback" in (directory / "log.txt").read_text()
    handlers = logging.getLogger("retrax").handlers
    assert [x for x in handlers if type(x).__module__.startswith("retrax")] == []
    monkeypatch.setattr(Loop, "advance", Mock(side_effect=RuntimeError("something\nlong")))
    _, _, err = retrax(*tiny, "--run-directory", tmp_path / "other")
    assert err.splitlines()[-1].startswith("retrax: The run failed at 0 steps: something (trace")


TWO = {"num_actors": 2, "actor_update_period": 10}


@pytest.mark.parametrize(
    ("fields", "make", "options", "sentence"),
    [
        ({}, lambda: make("catch", num_envs=3), {}, "environment has 3 environments instead of 2"),
        ({}, lambda: gymnasium.make_vec("CartPole-v1", 3), {}, "environment has 3 environments"),
        ({}, lambda: gymnasium.make("CartPole-v1"), {}, "it is a single TimeLimit: give a vector"),
        (
            {},
            lambda: make("memory", num_envs=2),
            {},
            r"must be as catch, .*\(50,\).*, but it has .*",
        ),
        (
            {},
            lambda: 3,
            {},
            "must be a VectorEnvironment, but it is a int, which has no reset, step",
        ),
        ({}, lambda: make("catch", num_envs=2), {"resume": True}, "must be None if resume is True"),
        (TWO, lambda: make("catch", num_envs=2), {}, "must be None if num_actors is not 1, got 2"),
        ({"on_device": True}, lambda: 3, {}, "must be None if on_device is not False, got True"),
    ],
)
def test_environments_that_do_not_fit_the_run_are_refused(
    tmp_path, fields, make, options, sentence
):
    config = RunConfig(agent="acer", num_envs=2, **{"environment": "catch", **fields})
    with pytest.raises(ValueError, match=f"^environment .*{sentence}|^{sentence}"):
        train(config, tmp_path / "run", environment=make(), **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", [1, 2])
def test_environments_of_gymnasium_that_were_made_before(number, tmp_path):
    environment = gymnasium.make("CartPole-v1")
    if number > 1:
        environment = gymnasium.make_vec("CartPole-v1", number, "sync")
    config = RunConfig(
        agent="noisy_agent:NOISY", environment="CartPole-v1", steps=120, num_envs=number
    )
    summary = train(config, tmp_path / "run", environment=environment, plain=True)
    assert summary.steps in (120, 121)
    assert summary.updates > 20
    assert 8 <= summary.last_return < 60


def test_the_environment_is_made_once_and_closed(tiny, tmp_path, monkeypatch):
    made, closed, make = [], [], RunConfig.make_environment

    def watched(*arguments, **options):
        environment = make(*arguments, **options)
        made.append(True)
        environment.close = lambda: closed.append(len(made))
        return environment

    monkeypatch.setattr(RunConfig, "make_environment", watched)
    monkeypatch.setattr(Loop, "advance", lambda self: 1 / 0)
    assert main([*tiny, "--run-directory", str(tmp_path / "run")]) == 1
    assert (len(made), set(closed)) == (1, {1})
    assert main([*tiny, "--agent.replay.capacity", "100000000000"]) == 2
    assert (len(made), set(closed)) == (2, {1, 2})


def test_ctrl_c_on_a_real_process(tiny, here, tmp_path):
    directory = tmp_path / "my run"
    words = [*tiny, "--steps", "10000000", "--run-directory", directory]
    with start_retrax(*words, cwd=here) as process:
        try:
            while not ((directory / "snapshots").is_dir() and snapshots(directory)):
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert err.endswith(f"Stopped by you. To continue: retrax train --resume '{directory}'\n")
    assert "Traceback" not in err
    assert "WARNING" not in err
    assert out.startswith(f"Run in {directory}.")
    assert rows(directory)[-1]["steps"] == str(snapshots(directory)[-1])


def test_workers_in_turn_from_the_command_line(retrax, tmp_path):
    """What they do: tests/training/test_workers.py."""
    train = ["train", "average_agent:ENTRY", "--environment", "catch", "--num-workers", "2"]
    train += ["--max-staleness", "0", "--gradients-per-fetch", "2", "--plain"]
    assert "must be False in one process" in retrax(*train, "--decoupled")[2]
    assert retrax(*train, "--run-directory", tmp_path, "--steps", "60")[0] == 0
    options = WorkerOptions(num_workers=2, max_staleness=0, gradients_per_fetch=2)
    assert read_config(tmp_path).workers == options
    assert retrax("train", "--resume", tmp_path, "--steps", "90", "--plain")[0] == 0
    told = rows(tmp_path)
    assert int(told[-1]["steps"]) == 90
    dropped = [float(row[DROPPED]) for row in told if row[DROPPED]]  # a row, a gradient of each
    assert dropped == [0.0, 1.0] * (len(dropped) // 2) + [0.0] * (len(dropped) % 2)
