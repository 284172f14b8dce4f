"""Calls between nodes, and their processes."""

import ast
import pathlib
import re
import signal
import subprocess
import sys
import threading

import psutil
import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from waiting import wait_for

from retrax.launchpad_programs.process import retry_until_stopped
from retrax.replay.waiting import Stopped

pytestmark = pytest.mark.distributed


class StatusError(Exception):
    """As Courier's error, which cannot be made in Python."""

    def __init__(self, name="DEADLINE_EXCEEDED"):
        super().__init__(name)
        self.code = type("Code", (), {"name": name})


@pytest.fixture(autouse=True)
def status_error(monkeypatch):
    monkeypatch.setattr("retrax.launchpad_programs.process.StatusNotOk", StatusError)


def answering(*answers):
    left = list(answers)

    def method():
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return method


def call(method, stop=None, **options):
    return retry_until_stopped(method, "The counter", stop or threading.Event(), **options)()


def test_calls_are_repeated_until_they_are_answered():
    assert call(answering(StatusError(), StatusError("UNAVAILABLE"), 3)) == 3


def test_an_error_of_the_other_node_is_raised_here():
    with pytest.raises(RuntimeError, match="The counter refused a call: INTERNAL"):
        call(answering(StatusError("INTERNAL"), 3))


def test_calls_end_with_the_program_and_after_a_time_without_answer():
    with pytest.raises(TimeoutError, match="The counter gave no answer for 0 s"):
        call(answering(StatusError()), max_wait=0.0)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped, match="The counter gave no answer before"):
        call(answering(StatusError()), stop)


def ignored(process):
    """The signals that a process ignores."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    mask = int(re.search(r"^SigIgn:\t(\w+)$", status, re.MULTILINE)[1], 16)
    return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}


def test_processes_of_nodes(tmp_path):
    """Signals of a terminal are the launcher's; a node's end has a status; none outlives it."""
    script = pathlib.Path(__file__).with_name("forked_nodes.py")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", script, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        try:
            assert ast.literal_eval(launcher.stdout.readline()) == {"fails": 1, "returns": 0}
            wait_for(lambda: {"learner", "actor"} <= {path.name for path in tmp_path.iterdir()})
            nodes = psutil.Process(launcher.pid).children()
            assert len(nodes) == 3
            learner, actor = (
                psutil.Process(int((tmp_path / name).read_text())) for name in ("learner", "actor")
            )
            assert actor.nice() - learner.nice() == 10
            assert {signal.SIGINT, signal.SIGHUP} <= ignored(learner) & ignored(actor)
            actor.terminate()
            wait_for((tmp_path / "actor_saved").exists)
            assert not (tmp_path / "learner_saved").exists()
        finally:
            launcher.kill()
        _, left = psutil.wait_procs(nodes, timeout=30)
        for process in left:
            process.kill()
        assert not left
        assert launcher.stderr.read().endswith("ValueError: the node's own sentence\n")
    assert (tmp_path / "learner_saved").exists()
    assert not (tmp_path / "late").exists()
