"""The learner's own replay at the end of a Reverb queue."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrivals import Arrivals
from ..interface import Draw, ReplayStatus
from ..local import LocalReplay
from .layout import Layout
from .reader import Reader


class QueuedReplay:
    """A `Replay` whose rows arrive through a queue in a `LocalReplay`.

    No more rows are taken from the queue than the schedule of updates permits, so the queue fills
    and fast actors wait: for each environment a few chunks at most are in flight. `Arrivals`
    says which rows are added.

    Attributes:
      local: holds the rows.
      shapes: see `Replay`.
      metric_names: see `Replay`.
    """

    metric_names: tuple[str, ...] = LocalReplay.metric_names

    def __init__(self, address: str, layout: Layout, local: LocalReplay, *, max_wait: float):
        """Starts reading the queue; arguments: see `make_replay`."""
        self.local, self.shapes = local, local.shapes
        self._arrivals = Arrivals(local.num_environments, local.cut)
        self._reader = Reader(address, layout, batch_size=1, max_wait=max_wait)

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """Draws if a call is due; takes rows from the queue until one is."""
        deadline = time.monotonic() + timeout
        while (batch := self.local.sample()) is None:
            item = self._reader.take(deadline - time.monotonic())
            if item is None:
                return None
            rows, origin = (column[0] for column in item.columns)
            self._add(rows, *origin.tolist())
        return batch

    def set_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities in the local replay."""
        self.local.set_priorities(keys, priorities)

    def metrics(self, keys: np.ndarray) -> dict[str, float]:
        """Those of the local replay."""
        return self.local.metrics(keys)

    def status(self) -> ReplayStatus:
        """Status of the local replay; rows in the queue are not counted."""
        return self.local.status()

    def state(self) -> dict[str, Any]:
        """State of the local replay; rows in the queue are lost."""
        return self.local.state()

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """Restores the local replay, and waits for the first rows of new episodes."""
        self.local.restore(state, counters)
        self.local.cut()
        self._arrivals.clear()

    def close(self) -> None:
        """Ends the reader's thread."""
        self._reader.close()

    def _add(self, rows: np.ndarray, environment: int, writer: int, number: int) -> None:
        """Adds packed rows of one environment; `number` is the first one's, by its writer."""
        packing = self.local.packing
        is_first, _ = packing.flags(packing.split(rows)[0])
        begin = self._arrivals.begin(environment, writer, number, is_first)
        for index in range(begin, len(rows)):
            row = packing.split(rows[index : index + 1])
            self.local.add_packed(row, np.array([environment]))
        self._arrivals.passed(environment, number + len(rows), added=begin < len(rows))
