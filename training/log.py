"""The log of a run: `log.txt` in its directory, and the console."""

import contextlib
import contextvars
import logging
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

FILE_ONLY = "file_only"  # `extra` of records that the console must not show

# What the log of this context's run is known by. All runs of a process share the logger.
_run: contextvars.ContextVar[object] = contextvars.ContextVar("run", default=None)


class _OfRun(logging.Filter):
    """Keeps the records of a run's context, and those of contexts that have no run."""

    def __init__(self, run: object):
        super().__init__()
        self.run = run

    def filter(self, record: logging.LogRecord) -> bool:
        return _run.get() in (None, self.run)


class _StderrHandler(logging.StreamHandler):
    """Writes to the current `sys.stderr`, which a progress bar replaces."""

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, stream: Any) -> None:
        """Ignored: the base class sets it once."""


class _TerminalFormatter(logging.Formatter):
    """Breaks lines between words; a terminal breaks them anywhere."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not sys.stderr.isatty():
            return text
        wrapper = textwrap.TextWrapper(
            shutil.get_terminal_size().columns,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        return "\n".join(map(wrapper.fill, text.splitlines()))


class _FileHandler(logging.FileHandler):
    """A file that may be on a full disk: one sentence on stderr, and the run continues."""

    _has_failed = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # of opening the file; others go to `handleError` already
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not self._has_failed:
            self._has_failed = True
            error = sys.exc_info()[1]
            reason = getattr(error, "strerror", None) or error
            sys.stderr.write(f"retrax: {self.baseFilename} cannot be written: {reason}.\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


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
    file = _FileHandler(directory / "log.txt", encoding="utf-8", delay=True)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    shown = _StderrHandler()
    shown.setFormatter(_TerminalFormatter("%(message)s"))
    shown.addFilter(lambda record: not (record.exc_info or getattr(record, FILE_ONLY, False)))
    for handler in (file, shown)[: 1 + console]:
        handler.addFilter(_OfRun(run))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # absl, which some libraries load, would print everything once more
    return logger


def close_log(logger: logging.Logger) -> None:
    """Closes the log that this context set up by `setup_log`. Calling it twice does no harm."""
    run = _run.get()
    _run.set(None)
    for handler in [handler for handler in logger.handlers if run in _runs(handler)]:
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = not any(map(_runs, logger.handlers))


def _runs(handler: logging.Handler) -> list[object]:
    """The run that a handler of `setup_log` is of; none for the program's own handlers."""
    return [each.run for each in handler.filters if isinstance(each, _OfRun)]
