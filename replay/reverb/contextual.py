"""The learner's own replay at the end of a Reverb queue, for contextual selection."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ...datatypes import Row
from ..interface import Draw, ReplayStatus
from ..local import LocalReplay
from .layout import QUEUE, Layout
from .reader import Reader


class _Position(NamedTuple):
    """Where an environment's rows are expected to continue."""

    writer: int = -1
    number: int = -1
    joined: bool = False  # whether rows are added, or wait for the next first row


class ContextualReplay:
    """A `Replay` whose rows arrive through a queue in a `LocalReplay`.

    No more rows are taken from the queue than the schedule of updates permits, so the queue fills
    and fast actors wait: for each environment a few chunks at most are in flight.

    Rows that arrive twice are dropped. Where rows are missing, or an actor has restarted, the
    episode is cut as by a time limit, and rows are added again from the next episode's first on.

    Attributes:
      local: holds the rows.
      shapes: see `Replay`.
      metric_names: likewise.
    """

    metric_names: tuple[str, ...] = LocalReplay.metric_names

    def __init__(self, address: str, layout: Layout, local: LocalReplay, *, max_wait: float):
        """Starts reading the queue; arguments as of `make_replay`."""
        self.local, self.shapes, self._layout = local, local.shapes, layout
        self._next: dict[int, _Position] = {}  # by environment
        self._reader = Reader(
            address, QUEUE, layout, batch_size=1, in_order=True, max_wait=max_wait
        )

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """Draws if a call is due; takes rows from the queue until one is."""
        deadline = time.monotonic() + timeout
        while (batch := self.local.sample()) is None:
            item = self._reader.take(deadline - time.monotonic())
            if item is None:
                return None
            origin, rows = self._layout.chunk([column[0] for column in item.columns])
            self._add(rows, *origin)
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
        self.local.store.cut()
        self._next.clear()

    def close(self) -> None:
        """Ends the reader's thread."""
        self._reader.close()

    def _add(self, rows: Row, environment: int, writer: int, number: int) -> None:
        """Adds rows `[n, ...]` of one environment; `number` is the first one's, by its writer."""
        num_environments = self.local.store.num_envs
        if not 0 <= environment < num_environments:
            raise ValueError(
                f"Rows of environment {environment} arrived, but the replay was made for "
                f"{num_environments}: environments must be numbered from 0."
            )
        expected = self._next.get(environment, _Position())
        num_rows = len(rows.is_last)
        skipped = expected.number - number if writer == expected.writer else -1
        joined = expected.joined
        if skipped < 0:
            self.local.store.cut(environment)
            skipped, joined = 0, False
        elif skipped >= num_rows:
            return
        if not joined:
            firsts = np.flatnonzero(rows.is_first[skipped:])
            joined = firsts.size > 0
            skipped = skipped + int(firsts[0]) if joined else num_rows
        self._next[environment] = _Position(writer, number + num_rows, joined)
        for index in range(skipped, num_rows):
            row = jax.tree.map(lambda x, index=index: x[index : index + 1], rows)
            self.local.add(row, np.array([environment]))
