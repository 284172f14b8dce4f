"""The learner's own replay at the end of a Reverb queue, for contextual selection."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ...datatypes import Row, Sample
from ..interface import ReplayStatus
from ..local import LocalReplay
from .columns import QUEUE, Columns
from .reader import Item, Reader


class _Chunk(NamedTuple):
    """Rows `[n, ...]` of one environment, and their origin."""

    environment: int
    writer: int
    time: int  # the number of the first row, counted by its writer
    rows: Row


class _Position(NamedTuple):
    """Where an environment's rows are expected to continue."""

    writer: int = -1
    time: int = -1
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
    """

    def __init__(self, address: str, columns: Columns, local: LocalReplay, *, max_wait: float):
        """Starts reading the queue; arguments as of `make_replay`."""
        self.local, self.shapes = local, local.shapes
        self._columns = columns
        self._next: dict[int, _Position] = {}  # by environment
        self._reader = Reader(address, QUEUE, self._assemble, in_flight=1, max_wait=max_wait)

    def sample(self, timeout: float = 0.0) -> tuple[np.ndarray, Sample] | None:
        """Draws if a call is due; takes rows from the queue until one is."""
        deadline = time.monotonic() + timeout
        while (batch := self.local.sample()) is None:
            chunk = self._reader.take(deadline - time.monotonic())
            if chunk is None:
                return None
            self._add(chunk)
        return batch

    def set_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities in the local replay."""
        self.local.set_priorities(keys, priorities)

    def status(self) -> ReplayStatus:
        """Status of the local replay; rows in the queue are not counted."""
        return self.local.status()

    def state(self) -> dict[str, Any]:
        """State of the local replay; rows in the queue are lost."""
        return self.local.state()

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """Restores the local replay, and waits for the first rows of new episodes."""
        self.local.restore(state, counters)
        self._next.clear()

    def close(self) -> None:
        """Ends the reader's thread."""
        self._reader.close()

    def _assemble(self, items: Iterator[Item]) -> _Chunk:
        columns = next(items).columns
        environment, writer, number = columns[-1].tolist()
        return _Chunk(environment, writer, number, self._columns.rows(columns))

    def _add(self, chunk: _Chunk) -> None:
        num_environments = self.local.store.num_envs
        if not 0 <= chunk.environment < num_environments:
            raise ValueError(
                f"Rows of environment {chunk.environment} arrived, but the replay was made for "
                f"{num_environments}: environments must be numbered from 0."
            )
        expected = self._next.get(chunk.environment, _Position())
        num_rows = len(chunk.rows.is_last)
        skipped = expected.time - chunk.time if chunk.writer == expected.writer else -1
        joined = expected.joined
        if skipped < 0:
            self.local.store.cut(chunk.environment)
            skipped, joined = 0, False
        elif skipped >= num_rows:
            return
        if not joined:
            firsts = np.flatnonzero(chunk.rows.is_first[skipped:])
            joined = firsts.size > 0
            skipped = skipped + int(firsts[0]) if joined else num_rows
        self._next[chunk.environment] = _Position(chunk.writer, chunk.time + num_rows, joined)
        for index in range(skipped, num_rows):
            rows = jax.tree.map(lambda x, index=index: x[index : index + 1], chunk.rows)
            self.local.add(rows, np.array([chunk.environment]))
