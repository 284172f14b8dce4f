"""Copies of an actor's files on the launcher's host: no shared file system is needed."""

import contextlib
import time
from pathlib import Path
from typing import Any

import ray

from .._writing import writing

_PERIOD_SECONDS = 10.0
_LAST_SECONDS = 5.0  # until the last copy has arrived


def write_file(path: Path, content: bytes) -> None:
    """Writes a file, whole or not at all; makes its folder."""
    partial = path.with_name(f"{path.name}.copy")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)


class FileCopy:
    """A file of a process that may be on another host, copied from time to time."""

    def __init__(self, path: Path):
        """Takes the path, which is the same on both hosts."""
        self._path = path
        self._host: Any = None
        self._coming: Any = None
        self._next = 0.0

    def begin(self, host: Any) -> None:
        """Follows a new process; `host.read` returns the file's bytes, or None for no copy."""
        self._host, self._coming = host, None
        self._next = time.monotonic() + _PERIOD_SECONDS

    def poll(self) -> None:
        """Asks for a copy if it is time, and writes one that has arrived; never waits."""
        now = time.monotonic()
        if self._coming is None and now >= self._next:
            self._coming = self._host.read.remote(self._path)
        elif self._coming is not None and ray.wait([self._coming], timeout=0)[0]:
            self._write(0.0)
            self._coming, self._next = None, now + _PERIOD_SECONDS

    def finish(self) -> None:
        """Waits for the last copy."""
        self._coming = self._host.read.remote(self._path)
        self._write(_LAST_SECONDS)

    def _write(self, timeout: float) -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # the next process reads the last copy
            content = ray.get(self._coming, timeout=timeout)
            if content is not None:
                write_file(self._path, content)
