"""The process of a run: its log, its signals, and the lock of its directory."""

import concurrent.futures
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from retrax.training.process import DirectoryLock, run_log, stop_on_signals
from retrax.training.run_config import LOCK


def ours(logger):
    """Handlers, without those of pytest."""
    return [x for x in logger.handlers if type(x).__module__ == "retrax.training.process"]


def test_handlers_of_the_program_stay(tmp_path):
    logger, handler = logging.getLogger("retrax"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        with run_log(tmp_path):
            pass
        assert handler in logger.handlers
        assert logger.propagate
    finally:
        logger.removeHandler(handler)


def test_log_goes_to_the_file_and_to_the_console(tmp_path, capsys):
    """It is appended to, and leaves nothing behind."""
    with run_log(tmp_path / "run") as logger:
        logger.info("first")
    with run_log(tmp_path / "run") as logger:
        logger.info("step %d of [bold]%s[/bold]", 3, "Pong")
        logger.debug("not this")
        logging.getLogger("retrax.agents").warning("from a module")
        assert len(ours(logger)) == 2
    logger.info("too late")
    assert (ours(logger), logger.propagate) == ([], True)
    lines = (tmp_path / "run" / "log.txt").read_text().splitlines()
    told = ["INFO first", "INFO step 3 of [bold]Pong[/bold]", "WARNING from a module"]
    assert [line.split(" ", 2)[2] for line in lines] == told
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", [line.split(" ", 1)[1] for line in told])


def test_a_run_within_a_run_has_a_log_of_its_own(tmp_path):
    """As where `on_metrics` trains another agent."""
    with run_log(tmp_path / "outer") as logger:
        with run_log(tmp_path / "inner"):
            logger.info("inner")
        logger.info("outer")
    for name in ("inner", "outer"):
        assert (tmp_path / name / "log.txt").read_text().split()[2:] == ["INFO", name]


def test_lines_break_between_words_in_a_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with run_log(tmp_path) as logger:
        logger.info("12 steps | /a/long-path/of-a-run-directory | ETA 0:00:10")
    assert capsys.readouterr().err.splitlines() == [
        "12 steps |",
        "  /a/long-path/of-a-run-directory",
        "  | ETA 0:00:10",
    ]
    (line,) = (tmp_path / "log.txt").read_text().splitlines()
    assert line.endswith("| ETA 0:00:10")


def test_runs_in_two_threads_have_logs_of_their_own(tmp_path, capsys):
    """Both begin before either logs; the first ends before the second logs again."""
    both, first_ended = threading.Barrier(3), threading.Event()

    def run(name):
        with run_log(tmp_path / name) as logger:
            both.wait(10)
            logger.info(f"{name} begins")
            both.wait(10)
            if name == "second":
                first_ended.wait(10)
                logger.info(f"{name} ends")

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(run, name) for name in ("first", "second")]
        both.wait(10)
        both.wait(10)
        runs[0].result(10)
        logging.getLogger("retrax.agents").warning("from a thread without a run")
        first_ended.set()
        runs[1].result(10)
    texts = [(tmp_path / name / "log.txt").read_text() for name in ("first", "second")]
    lines = [[line.split(" ", 3)[3] for line in text.splitlines()] for text in texts]
    assert lines == [
        ["first begins"],
        ["second begins", "from a thread without a run", "second ends"],
    ]
    assert sorted(capsys.readouterr().err.splitlines()) == sorted([*lines[0], *lines[1]])
    logger = logging.getLogger("retrax")
    assert (ours(logger), logger.propagate) == ([], True)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_sets_the_event_and_the_second_interrupts(number):
    ours = signal.signal(number, signal.default_int_handler)  # a hangup may be ignored here
    with stop_on_signals() as stop:
        assert not stop.is_set()
        with stop._cond:  # as within `wait`, for a moment
            os.kill(os.getpid(), number)
        assert stop.is_set()
        assert stop.wait(60.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.signal(number, ours) is signal.default_int_handler


def test_a_hangup_that_is_ignored_as_under_nohup_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_have_no_signals():
    def run():
        with stop_on_signals() as stop:
            return stop.is_set()

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        assert not threads.submit(run).result()


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
else:
    child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, close_fds=False).pid
print(child, flush=True)
time.sleep(60)
"""


@pytest.fixture
def hold(tmp_path):
    """Makes a process that holds the lock, and the id of its child; ends both."""
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
    os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("child", ["fork", "program"])
def test_the_lock_ends_with_its_process_even_if_a_child_lives_on(tmp_path, child, hold, contents):
    process, other = hold(child)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"^{tmp_path} is in use by process {process.pid}, "):
        DirectoryLock(tmp_path)
    assert contents(tmp_path) == before
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


def test_a_lock_whose_directory_was_removed_leaves_a_later_one(tmp_path):
    directory = tmp_path / "run"
    with DirectoryLock(directory) as lock:
        lock.acquire()
        shutil.rmtree(directory)
        directory.mkdir()
        later = DirectoryLock(directory)
    with later, pytest.raises(ValueError, match="is in use by process"):
        DirectoryLock(directory)


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
    directory.rmdir()
    directory.write_text("")
    with pytest.raises(ValueError, match=r"new/run cannot be written to: Not a directory\.$"):
        DirectoryLock(directory / "run").acquire()


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
