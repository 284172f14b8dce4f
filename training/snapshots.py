"""Snapshots of a run: numbered state files, each whole or not at all.

None is read before it was compared with its checksum.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..basics.checksums import check_sealed
from ..basics.sentences import first_line
from ..environments.plain_data import pack, unpack
from .learner import Snapshot
from .metrics import next_multiple
from .other_states import BEST
from .state_file import SUFFIX, read_state, write_state

_OPTIONAL = {"running"}  # parts that not all snapshots have
_SHARE = 0.05  # of the time, at most: a replay of gigabytes takes a minute to write


class Snapshots:
    """The snapshots/ folder of a run; each snapshot is named after its number of steps.

    Attributes:
      directory: the folder, which `save` makes.
    """

    def __init__(
        self, directory: Path, *, keep: int = 0, check: Callable[[int], None] | None = None
    ):
        """Takes the folder; changes nothing.

        Args:
          directory: the run directory.
          keep: how many of the newest are kept; 0 keeps all.
          check: a further check of the snapshot at some steps, which raises ValueError.
        """
        self.directory = directory.absolute() / "snapshots"
        self._keep, self._check = keep, check
        self._damage: dict[int, str] = {}  # of the snapshots that were checked; "" if whole

    def path(self, steps: int) -> Path:
        """The file of the snapshot at some steps."""
        return self.directory / f"{steps}{SUFFIX}"

    def steps(self) -> list[int]:
        """The steps of all snapshots, damaged or not, in order.

        Raises:
          ValueError: the folder has snapshots of an older version.
        """
        found = [*self.directory.iterdir()] if self.directory.is_dir() else []
        if any(path.name.isdecimal() for path in found):
            raise ValueError(
                f"{self.directory} holds snapshots of an older version of retrax, which this one "
                "does not read: train in another directory."
            )
        numbers = (path.stem for path in found if path.suffix == SUFFIX)
        return sorted(int(number) for number in numbers if number.isdecimal())

    def find(self, which: int | str = "newest") -> int:
        """The steps of a snapshot, `newest` or a number of steps, damaged or not.

        Raises:
          ValueError: there is no such snapshot; names those that there are.
        """
        steps = self.steps()
        if not steps:
            raise ValueError(
                f"{self.directory} holds no complete snapshot: training was stopped before the "
                "first one, and --resume starts from the beginning."
            )
        if which == "newest":
            return steps[-1]
        if str(which).isdecimal() and int(which) in steps:
            return int(which)
        reason = "of an evaluation (--evaluate-every)" if which == "best" else repr(which)
        best = ["best"] if (self.directory.parent / BEST).is_file() else []
        raise ValueError(
            f"{self.directory} holds no snapshot {reason}: allowed are "
            f"{', '.join(['newest', *best, *map(str, steps)])}."
        )

    def newest_whole(self) -> int:
        """Steps of the newest of those that are as they were written.

        Raises:
          ValueError: there is none; names a damaged file.
        """
        newest = self.find()
        found = self._newest_whole(newest)
        if found is None:
            raise self._damaged(newest)
        return found

    def passed_over(self) -> list[str]:
        """A sentence about every damaged snapshot that is newer than the newest whole one."""
        found = self.newest_whole()
        return [
            f"The snapshot at {steps} steps is damaged ({self._reason(steps)}): going back to the "
            f"one at {found} steps."
            for steps in self.steps()
            if steps > found
        ]

    def save(self, steps: int, snapshot: Snapshot) -> None:
        """Writes a snapshot; it appears when it is complete. Then removes those too many.

        Raises:
          OSError: it cannot be written; names its path. The older snapshots stay.
        """
        parts = {**snapshot._asdict(), "counters": pack(snapshot.counters)}
        parts = {name: part for name, part in parts.items() if part is not None}
        write_state(self.path(steps), parts)
        self._damage[steps] = ""
        self.remove_others(self.steps()[-self._keep :])

    def remove_newer(self, steps: int) -> None:
        """Removes the snapshots after `steps`, from which the run continues: damaged ones."""
        self.remove_others(other for other in self.steps() if other <= steps)

    def remove_others(self, kept: Iterable[int]) -> None:
        """Removes all snapshots but those at some steps, and what a killed process left of one."""
        for other in set(self.steps()) - set(kept):
            self.path(other).unlink()
            self._damage.pop(other, None)
        for path in self.directory.glob("*.partial"):
            path.unlink()

    def read(self, steps: int, **templates: Any) -> Snapshot:
        """The counters and some parts of a snapshot; its other parts are None.

        Args:
          steps: of the snapshot.
          **templates: by part, such as `learner`: a pytree like it, or its shapes and dtypes; None
            for `replay` and `running`. The last one comes unpacked, and may be missing.

        Raises:
          ValueError: it is damaged, or of another agent, config or version.
        """
        if self._reason(steps):
            raise self._damaged(steps)
        try:
            found = read_state(self.path(steps), {"counters": None, **templates})
            if missing := {"counters", *templates} - found.keys() - _OPTIONAL:
                raise ValueError(f"it has no part {min(missing)}")
            found |= {x: unpack(found[x]) for x in {"counters", *_OPTIONAL} & found.keys()}
            counted = found["counters"].get("steps", steps)
            if counted != steps:
                raise ValueError(f"its counters are those at {counted} steps")
        except ValueError as error:
            raise self.misfit(error, steps) from error
        return Snapshot(**{"learner": None, "replay": None, **found})

    def misfit(self, error: Exception, steps: int) -> ValueError:
        """One sentence for an error of a whole snapshot that was read."""
        return ValueError(
            f"The snapshot {self.path(steps)} is of another agent, config or version "
            f"({first_line(error).rstrip('.')})."
        )

    def _reason(self, steps: int) -> str:
        """What is wrong with a snapshot, "" if nothing is; it is checked once."""
        if steps not in self._damage:
            self._damage[steps] = ""
            try:
                check_sealed(self.path(steps))
                if self._check is not None:
                    self._check(steps)
            except (ValueError, OSError) as error:
                self._damage[steps] = str(error)
        return self._damage[steps]

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


class SnapshotInterval:
    """A snapshot is due after so many steps, or after so many seconds where those take longer.

    Attributes:
      next: steps at which the next one is due in any case.
    """

    def __init__(self, steps: int, *, every: int, seconds: float):
        """Begins at some steps; `every` is in steps, `seconds` are more if writing takes long."""
        self._every, self._seconds = every, seconds
        self.saved(steps, took=0.0)

    def is_due(self, steps: int) -> bool:
        """Whether a run at this number of steps has to be saved."""
        return steps >= self.next or (steps > self._steps and time.monotonic() >= self._at)

    def saved(self, steps: int, *, took: float) -> None:
        """Starts the next interval after a snapshot, which took so many seconds."""
        self._steps, self.next = steps, next_multiple(steps, self._every)
        self._at = time.monotonic() + max(self._seconds, took / _SHARE)


def newest_snapshot(directory: Path) -> int | None:
    """Steps of the newest snapshot in a run directory, damaged or not; None if there is none."""
    return max(Snapshots(directory).steps(), default=None)
