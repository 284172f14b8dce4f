"""Folders named after numbers of steps, each whole or not at all."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from ..basics.checksums import check_manifest, write_manifest

_PARTIAL = ".partial"  # a folder that is being written or removed
_UNFINISHED = (f"*{_PARTIAL}*", "*.orbax-checkpoint-tmp*")


def newest_snapshot(directory: Path) -> int | None:
    """Steps of the newest snapshot in a run directory, damaged or not; None if there is none."""
    return max(NumberedFolders(directory / "snapshots").steps(), default=None)


class NumberedFolders:
    """Folders with checksums; each gets its name when all of it is written.

    Attributes:
      directory: that holds them.
    """

    def __init__(self, directory: Path, *, also: Callable[[int], None] | None = None):
        """Takes their directory, and a further check, which raises ValueError."""
        self.directory, self._also = directory.absolute(), also
        self._damage: dict[int, str] = {}  # of the folders that were checked; "" if whole

    def steps(self) -> list[int]:
        """The numbers of all folders that were finished, in order."""
        names = [p.name for p in self.directory.iterdir()] if self.directory.is_dir() else []
        return sorted(int(name) for name in names if name.isdecimal())

    def newest(self) -> int:
        """The largest number.

        Raises:
          ValueError: there is none.
        """
        steps = self.steps()
        if not steps:
            raise self._none()
        return steps[-1]

    def newest_whole(self) -> int:
        """The largest number of those whose files are as they were written.

        Raises:
          ValueError: there is none; names a damaged file.
        """
        newest = self.newest()
        found = self._newest_whole(newest)
        if found is None:
            raise self._damaged(newest)
        return found

    def passed_over(self) -> list[str]:
        """A sentence about every damaged folder that is newer than the newest whole one."""
        found = self.newest_whole()
        return [
            f"The snapshot at {steps} steps is damaged ({self._reason(steps)}): going back to the "
            f"one at {found} steps."
            for steps in self.steps()
            if steps > found
        ]

    def remove_newer(self, steps: int) -> None:
        """Removes the folders after `steps`, from which the run continues: damaged ones."""
        for other in self.steps():
            if other > steps:
                self._remove(other)

    def remove_others(self, kept: Iterable[int]) -> None:
        """Removes all folders but those of some numbers."""
        for other in set(self.steps()) - set(kept):
            self._remove(other)

    def _clean(self) -> None:
        """Makes the directory, and removes what a killed process left unfinished."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for pattern in _UNFINISHED:
            for path in self.directory.glob(pattern):
                shutil.rmtree(path)

    def _unfinished(self, steps: int) -> Path:
        """Where a folder is written before `_finish`."""
        return self.directory / f"{steps}{_PARTIAL}"

    def _finish(self, steps: int) -> None:
        """Writes the checksums of an unfinished folder, and names it."""
        partial = self._unfinished(steps)
        write_manifest(partial)
        partial.rename(self.directory / str(steps))
        self._damage[steps] = ""

    def _remove(self, steps: int) -> None:
        """Takes its name first: what a kill leaves of it does not count."""
        (self.directory / str(steps)).rename(self._unfinished(steps))
        shutil.rmtree(self._unfinished(steps))
        self._damage.pop(steps, None)

    def _reason(self, steps: int) -> str:
        """What is wrong with a folder, "" if nothing is; it is read once."""
        if steps not in self._damage:
            try:
                check_manifest(self.directory / str(steps))
                if self._also is not None:
                    self._also(steps)
            except (ValueError, OSError) as error:
                self._damage[steps] = str(error)
            else:
                self._damage[steps] = ""
        return self._damage[steps]

    def _check(self, steps: int) -> None:
        """Refuses a damaged folder.

        Raises:
          ValueError: one sentence with the file and the newest older folder that is whole.
        """
        if self._reason(steps):
            raise self._damaged(steps)

    def _newest_whole(self, last: int) -> int | None:
        return next((s for s in reversed(self.steps()) if s <= last and not self._reason(s)), None)

    def _damaged(self, steps: int) -> ValueError:
        older = self._newest_whole(steps - 1)
        advice = (
            f"the newest older one that is whole is at {older} steps, and --resume goes back to it"
            if older is not None
            else "no older one is whole, and the run must be trained again in another directory"
        )
        return ValueError(
            f"The snapshot at {steps} steps is damaged ({self._reason(steps)}): {advice}."
        )

    def _none(self) -> ValueError:
        return ValueError(
            f"{self.directory} holds no complete snapshot: training was stopped before the first "
            "one, and --resume starts from the beginning."
        )
