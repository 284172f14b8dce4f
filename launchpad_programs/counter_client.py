"""A node's side of the counter: reports, and steps that are granted."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..replay.peer import Peer


class CounterClient:
    """Calls the counter in a node's name. However often a call is repeated, it is one.

    Attributes:
      total: steps counted since the start.
    """

    def __init__(self, counter: Peer, name: str, restarts: int):
        """Takes the counter, the node's name, and how often the node was restarted before."""
        self._counter, self._name, self._restarts = counter, name, restarts
        self._granted = self._taken = self.total = 0
        self._numbers = itertools.count()
        self._asked_at = time.monotonic()

    def open(self, counters: Mapping[str, Any], names: Sequence[str]) -> None:
        """As `Counter.open`."""
        self._counter.call("open", dict(counters), list(names))

    def report(self, taken: int | None = None, **values: Any) -> dict[str, Any]:
        """As `Counter.report`."""
        call = (self._restarts, next(self._numbers))
        answer: dict[str, Any] = self._counter.call("report", self._name, call, values, taken)
        return answer

    def is_granted(self, values: Callable[[], dict[str, Any]]) -> bool:
        """Whether a step may be taken; asks the counter if none is left.

        Args:
          values: for the counter (see `Counter.report`); called if it is asked.
        """
        if self._taken >= self._granted:
            now, taken = time.monotonic(), self._taken
            rate = taken / max(now - self._asked_at, 1e-6)
            self._asked_at, self._taken = now, 0
            answer = self.report(taken, **values(), steps_per_second=rate)
            self._granted = answer["granted"]
        return self._taken < self._granted

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
