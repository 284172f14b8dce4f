"""How programs end: real processes with nodes that do nothing (stub_program.py)."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import psutil
import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")
from retrax.launchpad_programs import launcher

pytestmark = pytest.mark.distributed

STUB = pathlib.Path(__file__).with_name("stub_program.py")
LABELS = ("counter", "learner", "actor")


class Stub:
    """A running stub program, in a session of its own as in a terminal."""

    def __init__(self, directory, mode, what):
        self.directory = directory
        self.temporary = directory / "temporary"
        self.temporary.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, STUB, directory, mode, what],
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def nodes(self):
        """The nodes' processes, when all of them run."""
        paths = [self.directory / f"{label}.pid" for label in LABELS]
        wait_until(lambda: all(path.exists() and path.read_text() for path in paths))
        return {path.stem: psutil.Process(int(path.read_text())) for path in paths}

    def end(self, timeout=30):
        """Exit status, what it printed, and its seconds."""
        started = time.monotonic()
        output, errors = self.process.communicate(timeout=timeout)
        seconds = time.monotonic() - started
        ending = json.loads(output) if output.startswith("{") else None
        return self.process.returncode, ending, seconds, errors

    @property
    def saved(self):
        return (self.directory / "saved").exists()


def wait_until(condition, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


@pytest.fixture
def stub(tmp_path):
    """Starts stubs, and leaves none behind."""
    stubs = []

    def start(mode, what):
        stubs.append(Stub(tmp_path, mode, what))
        return stubs[-1]

    yield start
    for stub in stubs:
        for process in psutil.Process(stub.process.pid).children() if alive(stub) else []:
            process.kill()
        stub.process.kill()
        stub.process.communicate()


def alive(stub):
    return stub.process.poll() is None


def assert_no_orphans(nodes):
    _, left = psutil.wait_procs(nodes.values(), timeout=15)
    assert not left


def test_the_agents_advice_is_logged_once(tmp_path, monkeypatch):
    status = {"phase": "learning", "nodes": {"learner/0": {"updates": 1}}}
    monkeypatch.setattr(launcher, "read_status", lambda directory: status)
    monkeypatch.setattr(launcher, "_STATUS_SECONDS", 0.0)
    warnings, config = [], types.SimpleNamespace(directory=tmp_path)
    table = types.SimpleNamespace(show=lambda *arguments: "")
    log = types.SimpleNamespace(info=print, warning=warnings.append)
    progress = launcher._Progress(config, [], table, log)
    for advice in ({}, {"advice": "!"}, {"advice": "!"}):
        status["nodes"]["learner/0"].update(advice)
        assert not progress.finished()
    assert warnings == ["!"]


@pytest.mark.parametrize("mode", ["local_mp", "local_mt"])
def test_ends_by_itself(stub, mode):
    program = stub(mode, "finish")
    status, ending, _, errors = program.end()
    assert (status, ending) == (0, {"failed": "", "traceback": "", "complete": True}), errors
    assert program.saved


@pytest.mark.parametrize("mode", ["local_mp", "local_mt"])
def test_a_node_that_raises_ends_the_program_with_its_traceback(stub, mode):
    program = stub(mode, "raise")
    status, ending, _, _ = program.end()
    assert status == 1
    assert ending["failed"].startswith("actor/0 failed with")
    assert ending["traceback"].startswith("Traceback (most recent call last):\n")
    assert ending["traceback"].endswith("ValueError: the actor's own sentence\n")
    assert program.saved


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_program_in_order(stub, number):
    program = stub("local_mp", "wait")
    nodes = program.nodes()
    if number == signal.SIGTERM:
        program.process.terminate()
    else:  # as a terminal does, to all its processes
        os.killpg(program.process.pid, number)
    status, ending, seconds, errors = program.end()
    assert (status, ending["failed"], ending["complete"]) == (0, "", True), errors
    assert seconds < 10
    assert program.saved
    assert_no_orphans(nodes)


def test_a_program_can_be_stopped_while_it_starts(stub, tmp_path):
    program = stub("local_mp", "wait")
    wait_until((tmp_path / "started").exists)
    program.process.terminate()
    status, ending, seconds, errors = program.end()
    assert (status, ending["failed"]) == (0, ""), errors
    assert seconds < 10


def test_a_node_that_ignores_its_stop_event_is_killed(stub):
    program = stub("local_mp", "deaf")
    nodes = program.nodes()
    program.process.terminate()
    status, _, seconds, _ = program.end()
    assert status == 0
    assert seconds < 10
    assert program.saved
    assert_no_orphans(nodes)


@pytest.mark.parametrize("label", ["actor", "learner", "counter"])
def test_a_killed_node_ends_the_program(stub, label):
    program = stub("local_mp", "wait")
    nodes = program.nodes()
    nodes[label].kill()
    status, ending, seconds, _ = program.end()
    assert status == 1
    assert ending["failed"] == f"{label}/0 was killed by SIGKILL"
    assert seconds < 10
    assert program.saved == (label != "learner")
    assert_no_orphans(nodes)


def test_a_killed_launcher_leaves_no_orphans(stub):
    program = stub("local_mp", "wait")
    nodes = program.nodes()
    program.process.kill()
    assert_no_orphans(nodes)
    assert program.saved
    assert not list(program.temporary.iterdir())


def test_a_launcher_killed_at_once_leaves_no_orphans(stub, tmp_path):
    program = stub("local_mp", "wait")
    wait_until((tmp_path / "started").exists)
    children = dict(enumerate(psutil.Process(program.process.pid).children(recursive=True)))
    assert len(children) == len(LABELS)
    program.process.kill()
    assert_no_orphans(children)
