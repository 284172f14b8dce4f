"""The log of a run: `log.txt` in its directory, and the console."""

import contextlib
import logging
import sys
from pathlib import Path
from typing import Any

FILE_ONLY = "file_only"  # `extra` of records that the console must not show


class _StderrHandler(logging.StreamHandler):
    """Writes to the current `sys.stderr`, which a progress bar replaces."""

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, stream: Any) -> None:
        """Ignored: the base class sets it once."""


class _FileHandler(logging.FileHandler):
    """A file that may be on a full disk: one sentence on stderr, and the run goes on."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # of opening the file; others go to `handleError` already
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not self._is_told:
            self._is_told = True
            sys.stderr.write(f"retrax: {self.baseFilename} cannot be written: {_why()}.\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()

    _is_told = False


def _why() -> str:
    error = sys.exc_info()[1]
    return str(getattr(error, "strerror", None) or error)


def setup_log(directory: Path) -> logging.Logger:
    """The log of a run: `log.txt` in its directory (appended to), and the console (stderr).

    It is the logger `retrax`, from level INFO on; a log that was set up before is closed first.
    Tracebacks go to the file alone, and the file is made with its first line.

    Args:
      directory: the run directory, made if it does not exist.

    Returns:
      The logger; `close_log` closes it.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger("retrax")
    close_log(logger)
    file = _FileHandler(directory / "log.txt", encoding="utf-8", delay=True)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    console = _StderrHandler()
    console.setFormatter(logging.Formatter("%(message)s"))
    console.addFilter(lambda record: not (record.exc_info or getattr(record, FILE_ONLY, False)))
    for handler in (file, console):
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # absl, which some libraries load, would print everything once more
    return logger


def close_log(logger: logging.Logger) -> None:
    """Closes the files of a log that `setup_log` set up. Calling it twice does no harm."""
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = True
