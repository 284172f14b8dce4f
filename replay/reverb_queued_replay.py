"""The learner's own store at the end of a Reverb queue, for contextual selection."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from .paced import PacedStore
from .reverb_reader import Item, Reader
from .reverb_tables import QUEUE, Columns

_CHUNKS_AHEAD = 1  # taken from the queue before they are needed


class _Chunk(NamedTuple):
    """Rows `[n, ...]` of one environment, and where they come from."""

    environment: int
    writer: int
    time: int  # the number of the first row among the writer's
    rows: Row


class _Next(NamedTuple):
    """What an environment's next row is to be; `joined` says whether rows are let in."""

    writer: int = -1
    time: int = -1
    joined: bool = False


class QueuedReplay(PacedStore):
    """A `PacedStore` whose rows come through a queue. A `LearnerReplay`.

    No more rows are let in than the ratio of acting steps to updates permits, so the queue fills
    and fast actors wait: for each environment a few chunks at most are on their way.

    Rows that came twice are dropped. Where rows are missing, or an actor has begun anew, the
    episode is cut as by a time limit, and rows are let in again from the next episode's first on.
    """

    def __init__(
        self,
        address: str,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        replay: ReplayConfig,
        *,
        num_environments: int,
        seed: int,
        patience: float = 600.0,
    ):
        """Args and errors as of `make_learner_replay`."""
        super().__init__(
            environment_spec, sequence, replay, num_environments=num_environments, seed=seed
        )
        self._columns = Columns(environment_spec, sequence, replay)
        self._next = [_Next()] * num_environments
        self._reader = Reader(
            address, QUEUE, self._chunk, in_flight=1, ahead=_CHUNKS_AHEAD, patience=patience
        )

    def receive(self, timeout: float) -> None:
        """See `LearnerReplay`."""
        deadline = time.monotonic() + timeout
        while not self.ready:
            chunk = self._reader.take(deadline - time.monotonic())
            if chunk is None:
                return
            self._take_in(chunk)

    def restore(self, state: Any, counters: Mapping[str, int]) -> None:
        """See `LearnerReplay`."""
        super().restore(state, counters)
        self._next = [_Next()] * len(self._next)

    def close(self) -> None:
        """See `LearnerReplay`."""
        self._reader.close()

    def _chunk(self, items: Iterator[Item]) -> _Chunk:
        columns = next(items).columns
        environment, writer, number = columns[-1].tolist()
        return _Chunk(environment, writer, number, self._columns.rows(columns))

    def _take_in(self, chunk: _Chunk) -> None:
        if not 0 <= chunk.environment < len(self._next):
            raise ValueError(
                f"Rows of environment {chunk.environment} arrived, but the replay was made for "
                f"{len(self._next)}: give writers numbers from 0 on."
            )
        expected = self._next[chunk.environment]
        num_rows = len(chunk.rows.is_last)
        skipped = expected.time - chunk.time if chunk.writer == expected.writer else -1
        joined = expected.joined
        if skipped < 0:
            self.store.cut(chunk.environment)
            skipped, joined = 0, False
        elif skipped >= num_rows:
            return
        if not joined:
            firsts = np.flatnonzero(chunk.rows.is_first[skipped:])
            joined = firsts.size > 0
            skipped = skipped + int(firsts[0]) if joined else num_rows
        self._next[chunk.environment] = _Next(chunk.writer, chunk.time + num_rows, joined)
        for index in range(skipped, num_rows):
            rows = jax.tree.map(lambda x, index=index: x[index : index + 1], chunk.rows)
            self.add(rows, np.array([chunk.environment]))
