"""When something that comes at intervals of a run is due."""

import time

_SHARE = 0.05  # of the time, at most: a replay of gigabytes takes a minute to write


def next_multiple(value: int, of: int) -> int:
    """The least multiple of a number that is greater than a value."""
    return (value // of + 1) * of


class SnapshotInterval:
    """A snapshot is due after so many steps, or after so many seconds where those take longer.

    Attributes:
      next: steps at which the next one is due in any case.
    """

    def __init__(self, steps: int, *, every: int, seconds: float):
        """Begins at some steps of the run.

        Args:
          steps: of the run.
          every: steps between snapshots.
          seconds: between snapshots, unless writing one takes more than a twentieth of them.
        """
        self._every, self._seconds = every, seconds
        self.saved(steps, took=0.0)

    def is_due(self, steps: int) -> bool:
        """Whether a run at this number of steps has to be saved."""
        return steps >= self.next or (steps > self._steps and time.monotonic() >= self._at)

    def saved(self, steps: int, *, took: float) -> None:
        """Starts the next interval after a snapshot, which took so many seconds."""
        self._steps, self.next = steps, next_multiple(steps, self._every)
        self._at = time.monotonic() + max(self._seconds, took / _SHARE)
