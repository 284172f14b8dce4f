"""The processes of Launchpad's nodes."""

import ast
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import psutil
import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from waiting import wait_for

from retrax.launchpad_programs.engines.launchpad import start_process, temporary_files

pytestmark = pytest.mark.distributed


def test_pickled_nodes_are_their_owners(tmp_path):
    before, umask = tempfile.gettempdir(), os.umask(0)
    folder = tmp_path / "logs" / "jobs"
    try:
        with temporary_files(folder):
            assert pathlib.Path(tempfile.mkdtemp()).parent == folder
            assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(umask)
    assert tempfile.gettempdir() == before


def ignored(process):
    """The signals that a process ignores."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    mask = int(re.search(r"^SigIgn:\t(\w+)$", status, re.MULTILINE)[1], 16)
    return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}


def test_processes_of_nodes(tmp_path):
    """Signals of a terminal are the launcher's; a node's end has a status; none outlives it."""
    script = pathlib.Path(__file__).with_name("forked_nodes.py")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-Wignore", script, tmp_path], **pipes) as launcher:
        try:
            assert ast.literal_eval(launcher.stdout.readline()) == {"fails": 1, "returns": 0}
            wait_for(lambda: all((tmp_path / x).exists() for x in ("learner", "actor", "stuck")))
            nodes = psutil.Process(launcher.pid).children()
            assert len(nodes) == 5
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
        wait_for(lambda: {x.status() for x in nodes if x.is_running()} <= {"zombie"}, 10)
        assert launcher.stderr.read().endswith("ValueError: the node's own sentence\n")
    assert (tmp_path / "learner_saved").exists()
    assert not (tmp_path / "late").exists()


def test_ends_and_tracebacks_of_processes(tmp_path):
    long = "import sys; exec('print(file=sys.stderr);' * 12); sys.exit(3)"
    wait = "import time; time.sleep(600)"
    expected = {
        "done": "",
        "failed with exit code 3": long,
        "failed with exit code 1": "try: no\nexcept NameError: never",
        "was killed by SIGTERM": wait,
        "was killed by SIGKILL": wait,
    }
    nodes = [
        start_process(f"a/{number}", [sys.executable, "-c", code], tmp_path)
        for number, code in enumerate(expected.values())
    ]
    _, long, failed, stopped, killed = nodes
    assert stopped.ended() == killed.ended() == ""
    stopped.stop()
    killed.kill()
    wait_for(lambda: all(each.ended() for each in nodes))
    assert [each.ended() for each in nodes] == list(expected)
    assert not any(each.revive() for each in nodes)
    assert long.traceback() == 10 * "\n"
    newest = failed.traceback()
    assert newest.startswith("Traceback (most recent call last):\n")
    assert newest.endswith("NameError: name 'never' is not defined\n")
    assert newest.count("Traceback") == 1
