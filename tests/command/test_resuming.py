"""A resumed run is the run that was never stopped, bit for bit."""

import importlib
import os
import shutil
import signal
import sys

import pytest
from benchmark_modules import FOLDER
from fresh_python import run_python
from run_files import check_equal, newest, rows, stop_with

from retrax.command import training
from retrax.evaluation.evaluations import PeriodicEvaluation
from retrax.training.snapshots import read_state, write_state

CART_POLE = "--environment", "CartPole-v1"


@pytest.fixture
def train(tmp_path, tiny, retrax):
    """Runs `retrax train` of the cheap agent, by default on catch, into a folder of a name."""

    def call(name, *flags):
        status, _, err = retrax(*tiny, *flags, "--run-directory", tmp_path / name)
        assert status == 0, err
        return tmp_path / name

    return call


@pytest.fixture
def resume(retrax):
    def call(directory, steps=240):
        status, _, err = retrax("train", "--resume", directory, "--steps", steps)
        assert status == 0, err
        return directory

    return call


def test_parts_are_one_run(finished, train, resume):
    """They end between two rows of metrics.csv and at one."""
    parts = train("parts", "--steps", "100")
    assert rows(parts)[-1]["steps"] == "100"
    resume(resume(parts, 120))
    check_equal(parts, finished)
    log = (parts / "log.txt").read_text()
    assert "Resumed at 100 steps.\n" in log
    assert "new episodes" not in log


def test_a_stopped_run_is_one_run(finished, train, resume, monkeypatch):
    with monkeypatch.context() as patch:
        stop_with(patch, signal.SIGINT, at=120)
        parts = train("parts")
    assert newest(parts)[0] == 120
    check_equal(resume(parts), finished)


@pytest.mark.slow
def test_a_run_of_an_agent_of_ours_that_lost_its_newest_snapshot_is_one_run(
    tiny, retrax, resume, tmp_path
):
    fields = ["--agent.replay.min-rows", 40, "--agent.replay.capacity", 400]
    words = [tiny[0], "reactor", *tiny[2:], *fields, "--run-directory", tmp_path / "whole"]
    assert retrax(*words)[0] == 0
    run = shutil.copytree(tmp_path / "whole", tmp_path / "run")
    (run / "snapshots" / "240.npz").unlink()
    check_equal(resume(run), tmp_path / "whole")


def test_evaluations_and_their_interruption(train, resume, monkeypatch):
    """The evaluation at 120 steps is interrupted; those at the ends of the parts are extra."""
    flags = ["--evaluate-every", "60", "--evaluation-episodes", "2"]
    one, parts = train("one", *flags), train("parts", *flags, "--steps", "80")
    assert rows(parts)[-1]["evaluation_return"]
    run = PeriodicEvaluation.run

    def interrupted(self, steps, *arguments):
        if steps == 120:
            os.kill(os.getpid(), signal.SIGINT)
        return run(self, steps, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(PeriodicEvaluation, "run", interrupted)
        resume(parts)
    assert newest(parts)[0] == 120
    check_equal(resume(parts), one)


def test_actors_in_one_thread_are_one_run(train, resume, monkeypatch):
    """Their order and the age of their parameters continue too."""
    flags = ["--num-actors", "2", "--actor-update-period", "7"]
    one, parts = (
        train(name, *flags, "--steps", steps, *CART_POLE)
        for name, steps in (("one", 240), ("parts", 100))
    )
    check_equal(resume(parts), one)
    with monkeypatch.context() as patch:  # stopped before the first step
        signalled = os.getpid(), signal.SIGINT
        patch.setattr(training, "describe", lambda *_, **__: os.kill(*signalled) or [])
        none = train("none", *flags, *CART_POLE)
    assert newest(none)[0] == 0
    check_equal(resume(none), one)


def resumed_line(directory):
    (line,) = [x for x in (directory / "log.txt").read_text().splitlines() if "Resumed at" in x]
    return line.partition("Resumed at ")[2]


def test_a_snapshot_without_environments_is_resumed_with_new_episodes(run, resume):
    path = run / "snapshots" / "240.npz"
    parts = read_state(path)
    write_state(path, {name: parts[name] for name in parts if name != "running"})
    assert resumed_line(resume(run, 320)) == (
        "240 steps. The environments begin new episodes: the snapshot has no state of them."
    )
    assert [int(row["steps"]) for row in rows(run)] == [*range(40, 321, 40)]


MODULE = """
from stepping import Counting

class Walk(Counting):
    length = 5

    def __init__(self):
        self.time, self.hidden = 0, SECRET
"""


@pytest.mark.parametrize(
    ("secret", "later", "reason"),
    [
        ("object()", "object()", "hidden is a builtins.object"),
        ("3", "Walk", "they cannot continue (constants {'hidden': 'hiding.Walk'} instead of {})"),
    ],
)
def test_environments_that_cannot_continue_begin_new_episodes(
    train, resume, tmp_path, monkeypatch, secret, later, reason
):
    def write(value):
        (tmp_path / "hiding.py").write_text(MODULE.replace("SECRET", value))
        monkeypatch.delitem(sys.modules, "hiding", raising=False)
        importlib.invalidate_caches()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)

    monkeypatch.chdir(tmp_path)
    write(secret)
    run = train("run", "--steps", "100", "--environment", "hiding:Walk")
    write(later)
    new = f"The environments begin new episodes: {reason}."
    assert resumed_line(resume(run, 200)) == f"100 steps. {new}"
    assert [row["steps"] for row in rows(run)] == ["40", "80", "120", "160", "200"]


def exact_resume(here, *words):
    """What benchmarks/exact_resume.py prints."""
    words = [*words, "--agents", "noisy_agent:NOISY"]
    return run_python(FOLDER / "exact_resume.py", *words, cwd=here)


@pytest.mark.documents
def test_the_table_of_equal_runs(here):
    out = exact_resume(here, "resume", "--steps", "60", "--environments", "catch")
    (line,) = [line for line in out.splitlines() if "stopped at" in line]
    assert line.endswith("equal")


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_is_one_run(here):
    exact_resume(here, "kills", "--environments", "catch", "CartPole-v1")
