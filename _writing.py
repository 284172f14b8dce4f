"""Errors of writing, in one sentence with the path."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

_FULL = "No space left on device"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Names a file in the errors of the code that writes it.

    Raises:
      OSError: "PATH cannot be written: REASON."; also for errors of libraries that have other types
        for a full disk.
    """
    try:
        yield
    except Exception as error:
        if _FULL in str(error):
            raise OSError(f"{path} cannot be written: {_FULL}.") from error
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise OSError(f"{path} cannot be written: {reason}.") from error
        raise
