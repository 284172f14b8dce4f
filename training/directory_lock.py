"""The lock of a run directory: at most one process writes into it."""

import contextlib
import fcntl
import os
from pathlib import Path

LOCK = "lock"  # in a run directory, as long as a process writes into it

_held: "set[DirectoryLock]" = set()  # by this process


class DirectoryLock(contextlib.AbstractContextManager["DirectoryLock"]):
    """Held by the one process that may write into a run directory.

    The operating system frees it when the process ends, however it ends, even if processes that it
    started live on: programs that it executes do not inherit the file, and its forks close theirs.
    The file `lock` has the id of the process, and is removed with the lock; one that a killed
    process left does no harm.
    """

    # flock: a lock of lockf does not keep out threads, and is lost when any file of it is closed.

    def __init__(self, directory: Path):
        """Takes the lock at once if the directory exists; if not, `acquire` makes it later."""
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
                f"{self._directory} is in use by {self._holder()}, which writes into it: wait for "
                "its end, or choose another run directory."
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
