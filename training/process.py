"""The process of a run: its log, stop requests, and the lock of its directory."""

import _thread
import contextlib
import contextvars
import fcntl
import logging
import os
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from .run_config import LOCK

FILE_ONLY = "file_only"  # `extra` of records that the console must not show

# What the log of this context's run is known by. All runs of a process share the logger.
_run: contextvars.ContextVar[object] = contextvars.ContextVar("run", default=None)
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 1.0
StopEvent = threading.Event  # what a loop watches
_held: "set[DirectoryLock]" = set()  # by this process


class _RunHandler(logging.Handler):
    """Gets the records of a run's context, and of contexts that have no run."""

    def __init__(self, run: object, layout: str):
        super().__init__()
        self.run = run
        self.setFormatter(logging.Formatter(layout))

    def filter(self, record: logging.LogRecord) -> bool:
        return _run.get() in (None, self.run)


class _File(_RunHandler):
    """A file that may be on a full disk: one sentence on stderr, and the run continues."""

    def __init__(self, run: object, path: Path):
        super().__init__(run, "%(asctime)s %(levelname)s %(message)s")
        self._path, self._has_failed = path.absolute(), False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{self.format(record)}\n")
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                reason = error.strerror or error
                sys.stderr.write(f"retrax: {self._path} cannot be written: {reason}.\n")


class _Console(_RunHandler):
    """The current `sys.stderr`, which a progress bar replaces; without tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or getattr(record, FILE_ONLY, False):
            return
        text = self.format(record)
        if sys.stderr.isatty():  # a terminal breaks lines anywhere, this between words
            width = shutil.get_terminal_size().columns
            wrapper = textwrap.TextWrapper(
                width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            )
            text = "\n".join(map(wrapper.fill, text.splitlines()))
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{text}\n")


@contextlib.contextmanager
def run_log(directory: Path, *, console: bool = True) -> Iterator[logging.Logger]:
    """The log of this context's run: `log.txt` in its directory, appended to, and stderr.

    It is the logger `retrax`, from level INFO on. Runs in other contexts, as in other threads, have
    logs of their own; records of no run go to all of them. Tracebacks go to the file alone.
    """
    directory.mkdir(parents=True, exist_ok=True)
    logger, run = logging.getLogger("retrax"), object()
    handlers: list[_RunHandler] = [_File(run, directory / "log.txt")]
    if console:
        handlers.append(_Console(run, "%(message)s"))
    for handler in handlers:
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # absl, which some libraries load, would print everything once more
    before = _run.set(run)
    try:
        yield logger
    finally:
        _run.reset(before)
        for handler in handlers:
            logger.removeHandler(handler)
        logger.propagate = not any(isinstance(x, _RunHandler) for x in logger.handlers)


class StopAtOnceError(KeyboardInterrupt):
    """A second signal."""


class SignalEvent(threading.Event):
    """An event for a signal's handler, which may interrupt `wait` where that holds the lock."""

    _was_set = False

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._was_set

    def set(self) -> None:
        """Sets it; another thread, which may wait for the lock, wakes those that wait."""
        self._was_set, begun = True, threading.Event()
        calls: tuple[Callable[[], object], ...] = (begun.set, super().set)
        _thread.start_new_thread(lambda: [call() for call in calls], ())
        begun.wait()  # until then Python 3.10 takes it for this thread, in which Acme raises


class EitherStop(threading.Event):
    """Is set with another event, which it does not set."""

    def __init__(self, other: StopEvent):
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        """Whether one of them is set."""
        return super().is_set() or self._other.is_set()


@contextlib.contextmanager
def stop_on_signals(doing: Callable[[], str] | None = None) -> Iterator[threading.Event]:
    """Sets an event on the first SIGINT, SIGTERM or SIGHUP; the second raises StopAtOnceError.

    Outside of the main thread, where Python handles no signals, the event is never set. If the
    program has not ended a second after the first signal, what it is `doing` is written to stderr.
    """
    stop = SignalEvent()

    def request(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise StopAtOnceError
        stop.set()

    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # under nohup
    numbers = (signal.SIGINT, signal.SIGTERM, *(() if is_ignored else (signal.SIGHUP,)))
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, request) for n in numbers} if in_main_thread else {}
    ended = threading.Event()
    # A thread prints the message; signal handlers must not block.
    telling = threading.Thread(target=_tell, args=(doing, stop, ended), daemon=True)
    telling.start()
    try:
        yield stop
    finally:
        ended.set()
        telling.join()  # a thread that still runs when Python ends may abort it
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(doing: Callable[[], str] | None, stop: threading.Event, ended: threading.Event) -> None:
    while doing is not None and not ended.wait(_POLL_SECONDS):
        if stop.is_set():
            if not ended.wait(_PATIENCE_SECONDS):
                sys.stderr.write(
                    f"Stopping: waiting for {doing()}. A second Ctrl-C does not wait, and saves no "
                    "further snapshot.\n"
                )
            return


class DirectoryLock(contextlib.AbstractContextManager["DirectoryLock"]):
    """Held by the one process that may write into a run directory; `lock` there has its id.

    The operating system frees it when the process ends, however it ends, even if processes that it
    started live on: programs that it executes do not inherit the file, and its forks close theirs.
    """

    # flock: a lock of lockf does not keep out threads, and is lost when any file of it is closed.

    def __init__(self, directory: Path):
        """Locks at once if the directory exists; if not, `acquire` makes it later."""
        self._directory, self._path = directory, directory / LOCK
        self._file: int | None = None
        self._is_new = not directory.is_dir()
        if not self._is_new:
            self.acquire()

    def acquire(self) -> None:
        """Makes the directory if there is none, and takes the lock, or raises a ValueError."""
        if self._file is not None:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            while not self._try():
                pass
        except BlockingIOError:
            raise ValueError(
                f"{self._directory} is in use by {self._holder()}, which writes into it: wait "
                "until it ends, or choose another run directory."
            ) from None
        except OSError as error:
            raise ValueError(
                f"The run directory {self._directory} cannot be written to: "
                f"{error.strerror or error}."
            ) from error
        _held.add(self)

    def __exit__(self, *error: object) -> None:
        """Frees the lock, and removes a directory that was made for it and is still empty."""
        if self._file is None:  # or a fork's, whose parent keeps it
            return
        with contextlib.suppress(OSError):  # the directory may have been removed
            if os.path.samestat(os.fstat(self._file), self._path.stat()):  # else another's
                self._path.unlink()
            if self._is_new:
                self._directory.rmdir()
        self.forget()

    def forget(self) -> None:
        """Closes the file; in a fork of the process that holds the lock, that one keeps it."""
        file, self._file = self._file, None
        _held.discard(self)
        if file is not None:
            os.close(file)

    def _try(self) -> bool:
        """Locks the file; False if its holder removed it meanwhile."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)  # not inherited
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), self._path.stat()):
                    os.ftruncate(file, 0)
                    os.write(file, f"{os.getpid()}\n".encode())
                    self._file = file
        finally:
            if self._file is None:
                os.close(file)
        return self._file is not None

    def _holder(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return f"process {int(self._path.read_text(encoding='ascii'))}"
        return "another process"


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)
