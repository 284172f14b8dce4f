"""Steps that the counter grants to a node that acts."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from .counter import Counter, CounterClient


class Claims:
    """Claims steps, and reports those that were taken.

    Attributes:
      total: steps taken since the start.
    """

    def __init__(self, counter: Counter | CounterClient, name: str, process: int):
        """Takes the counter, the node's name, and how often the node was restarted before."""
        self._counter, self._name, self._process = counter, name, process
        self._granted = self._taken = self.total = 0
        self._calls = itertools.count()
        self._claimed_at = time.monotonic()

    def is_granted(self, values: Callable[[], dict[str, Any]]) -> bool:
        """Whether a step may be taken; asks the counter if none is left.

        Args:
          values: for the counter, as of `Counter.claim`; called if it is asked.
        """
        return self._taken < self._granted or self._claim(values())

    def count(self, taken: int) -> None:
        """Counts steps that were taken."""
        self._taken += taken
        self.total += taken

    def _claim(self, values: dict[str, Any]) -> bool:
        now = time.monotonic()
        values["steps_per_second"] = self._taken / max(now - self._claimed_at, 1e-6)
        self._claimed_at = now
        taken, self._taken = self._taken, 0
        self._granted = self._counter.claim(
            self._name, self._process, next(self._calls), taken, values
        )
        return self._granted > 0
