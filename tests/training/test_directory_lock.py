"""At most one process writes into a run directory."""

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from retrax.training.process import DirectoryLock
from retrax.training.run_config import LOCK

HOLD = """
import os, subprocess, sys, time
from pathlib import Path
from retrax.training.process import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
if sys.argv[2] == "fork":
    begun, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b"!")
        os.close(1)
        time.sleep(60)
        os._exit(0)
    os.read(begun, 1)
elif sys.argv[2] == "program":
    child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, close_fds=False).pid
else:
    child = os.getpid()
print(child, flush=True)
time.sleep(60)
"""


@pytest.fixture
def hold(tmp_path):
    """Makes a process that holds the lock, and the id of its child, or its own; ends both."""
    held = []

    def begin(child):
        command = [sys.executable, "-c", HOLD, str(tmp_path), child]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        held.extend([process, int(process.stdout.readline())])
        return held

    yield begin
    process, child = held
    process.kill()
    process.communicate()
    if child != process.pid:
        os.kill(child, signal.SIGKILL)


def test_another_process_is_named(tmp_path, contents, hold):
    process, _ = hold("none")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"^{tmp_path} is in use by process {process.pid}, "):
        DirectoryLock(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("child", ["fork", "program"])
def test_the_lock_ends_with_its_process_even_if_a_child_lives_on(tmp_path, child, hold):
    process, other = hold(child)
    with pytest.raises(ValueError, match="is in use"):
        DirectoryLock(tmp_path)
    process.kill()
    process.wait()
    os.kill(other, 0)  # raises if it has ended
    assert (tmp_path / LOCK).exists()
    with DirectoryLock(tmp_path):
        assert int((tmp_path / LOCK).read_text()) == os.getpid()


@pytest.mark.filterwarnings("ignore:.*fork")  # by JAX: the child takes no lock of it
def test_a_fork_does_not_end_the_lock(tmp_path):
    with DirectoryLock(tmp_path) as lock:
        child = os.fork()
        if child == 0:
            lock.__exit__()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert (tmp_path / LOCK).exists()
        with pytest.raises(ValueError, match=f"process {os.getpid()}"):
            DirectoryLock(tmp_path)


def test_a_new_directory_is_made_only_when_the_lock_is_acquired(tmp_path):
    directory = tmp_path / "runs" / "new"
    with DirectoryLock(directory) as lock:
        assert not directory.parent.exists()
        lock.acquire()
        lock.acquire()
        assert [path.name for path in directory.iterdir()] == [LOCK]
        with pytest.raises(ValueError, match="is in use"):
            DirectoryLock(directory)
    assert not directory.exists()  # nothing was written into it
    directory.mkdir()
    with DirectoryLock(directory):
        pass
    assert list(directory.iterdir()) == []  # it was there before


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    lock = DirectoryLock(tmp_path / "file" / "run")
    with pytest.raises(ValueError, match=r"file/run cannot be written to: Not a directory\.$"):
        lock.acquire()


def test_a_lock_file_that_its_holder_removes_does_not_count(tmp_path, monkeypatch):
    """Between opening the file and locking it, one process ends and another one begins."""
    flock, holders = fcntl.flock, [DirectoryLock(tmp_path)]

    def late(file, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        holders[0].__exit__()
        holders.append(DirectoryLock(tmp_path))
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(ValueError, match=f"is in use by process {os.getpid()}"):
        DirectoryLock(tmp_path)
    holders[1].__exit__()
    with DirectoryLock(tmp_path):
        pass
