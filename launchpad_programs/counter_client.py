"""A node's side of the counter: reports, steps that are granted, states that are kept."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .peers import Caller


class CounterClient:
    """Calls the counter in a node's name. However often a call is repeated, it is one.

    Attributes:
      total: steps counted since the start.
    """

    def __init__(self, counter: Caller, name: str, restarts: int):
        """Takes the counter, the node's name, and how often the node was restarted before."""
        self._counter, self._name, self._restarts = counter, name, restarts
        self._granted = self._taken = self.total = 0
        self._reports, self._claims = itertools.count(), itertools.count()
        self._claimed_at = time.monotonic()

    def open(self, counters: Mapping[str, Any], names: Sequence[str]) -> None:
        """As `Counter.open`."""
        self._counter.call("open", dict(counters), list(names))

    def report(self, **values: Any) -> dict[str, Any]:
        """As `Counter.report`."""
        call = (self._restarts, next(self._reports))
        answer: dict[str, Any] = self._counter.call("report", self._name, values, call)
        return answer

    def is_granted(self, values: Callable[[], dict[str, Any]]) -> bool:
        """Whether a step may be taken; asks the counter if none is left.

        Args:
          values: for the counter (see `Counter.claim`); called if it is asked.
        """
        return self._taken < self._granted or self._claim(values())

    def count(self, taken: int) -> None:
        """Counts steps that were taken."""
        self._taken += taken
        self.total += taken

    def keep(self, state: bytes) -> None:
        """As `Counter.keep`."""
        self._counter.call("keep", self._name, state)

    def kept(self) -> bytes | None:
        """As `Counter.kept`."""
        state: bytes | None = self._counter.call("kept", self._name)
        return state

    def _claim(self, values: dict[str, Any]) -> bool:
        now = time.monotonic()
        values["steps_per_second"] = self._taken / max(now - self._claimed_at, 1e-6)
        self._claimed_at = now
        taken, self._taken = self._taken, 0
        call = (self._restarts, next(self._claims))
        self._granted = self._counter.call("claim", self._name, *call, taken, values)
        return self._granted > 0
