"""The log of a run: `log.txt` in its directory, and the console."""

import contextlib
import contextvars
import logging
import shutil
import sys
import textwrap
from pathlib import Path

FILE_ONLY = "file_only"  # `extra` of records that the console must not show

# What the log of this context's run is known by. All runs of a process share the logger.
_run: contextvars.ContextVar[object] = contextvars.ContextVar("run", default=None)


class _RunHandler(logging.Handler):
    """Gets the records of a run's context, and those of contexts that have no run."""

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


def setup_log(directory: Path, *, console: bool = True) -> logging.Logger:
    """The log of a run: `log.txt` in its directory, appended to, and stderr if `console`.

    It is the logger `retrax`, from level INFO on; a log that this context (`contextvars`) set up
    before is closed first. Runs in other contexts, as in other threads, have logs of their own;
    what is logged where there is no run goes to all of them. Tracebacks go to the file alone.
    """
    directory.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger("retrax")
    close_log(logger)
    run = object()
    _run.set(run)
    logger.addHandler(_File(run, directory / "log.txt"))
    if console:
        logger.addHandler(_Console(run, "%(message)s"))
    logger.setLevel(logging.INFO)
    logger.propagate = False  # absl, which some libraries load, would print everything once more
    return logger


def close_log(logger: logging.Logger) -> None:
    """Closes the log that this context set up by `setup_log`. Calling it twice does no harm."""
    run = _run.get()
    _run.set(None)
    ours = [handler for handler in logger.handlers if isinstance(handler, _RunHandler)]
    closed = [handler for handler in ours if handler.run is run]
    for handler in closed:
        logger.removeHandler(handler)
    logger.propagate = len(ours) == len(closed)
