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

from retrax.launchpad_programs.engines.launchpad import ProcessNode, _temporary_files

pytestmark = pytest.mark.distributed


def test_pickled_nodes_are_their_owners(tmp_path):
    before, umask = tempfile.gettempdir(), os.umask(0)
    folder = tmp_path / "logs" / "jobs"
    try:
        with _temporary_files(folder):
            assert folder.stat().st_mode & 0o777 == 0o700
            made = tempfile.mkdtemp()
            with open(os.path.join(made, "job.pkl"), "w"):
                pass
    finally:
        os.umask(umask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert modes == {os.path.basename(made): 0o700, "job.pkl": 0o600}
    assert tempfile.gettempdir() == before


def ignored(process):
    """The signals that a process ignores."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    mask = int(re.search(r"^SigIgn:\t(\w+)$", status, re.MULTILINE)[1], 16)
    return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}


def has_ended(process):
    """Also one that nobody has waited for."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


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
        wait_for(lambda: all(has_ended(node) for node in nodes), 10)
        assert launcher.stderr.read().endswith("ValueError: the node's own sentence\n")
    assert (tmp_path / "learner_saved").exists()
    assert not (tmp_path / "late").exists()


def test_ends_and_tracebacks_of_processes(tmp_path):
    def worker(name, code):
        with (tmp_path / name).open("w") as log:
            process = subprocess.Popen([sys.executable, "-c", code], stderr=log)
        return ProcessNode(f"{name}/0", process, tmp_path / name)

    long = "import sys; exec('print(file=sys.stderr);' * 12); sys.exit(3)"
    wait = "import time; time.sleep(600)"
    workers = {
        "done": worker("a", ""),
        "failed with exit code 3": worker("b", long),
        "failed with exit code 1": worker("c", "try: no\nexcept NameError: never"),
        "was killed by SIGTERM": worker("d", wait),
        "was killed by SIGKILL": worker("e", wait),
    }
    *_, stopped, killed = workers.values()
    assert stopped.ended() == killed.ended() == ""
    stopped.stop()
    killed.kill()
    wait_for(lambda: all(each.ended() for each in workers.values()))
    assert [each.ended() for each in workers.values()] == list(workers)
    assert not any(each.revive() for each in workers.values())
    assert workers["failed with exit code 3"].traceback() == 10 * "\n"
    newest = workers["failed with exit code 1"].traceback()
    assert newest.startswith("Traceback (most recent call last):\n")
    assert newest.endswith("NameError: name 'never' is not defined\n")
    assert newest.count("Traceback") == 1
    missing = ProcessNode("f/0", None, tmp_path / "f")
    assert missing.traceback() == ""
