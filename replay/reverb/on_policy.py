"""The learner's side of two Reverb tables: the newest sequences, once each, and replayed ones.

`E` denotes the environments of all actors together.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...datatypes import Sample
from ..interface import ReplayStatus
from ..schedule import UpdateSchedule
from .columns import NEWEST, Columns
from .prioritized import PrioritizedReplay
from .reader import Item, Reader


class OnPolicyReplay:
    """A `Replay` in the rounds of an `UpdateSchedule`, around a `PrioritizedReplay`.

    A round begins when E sequences have arrived through the queue, which holds as many: fast actors
    wait for the learner. They are the E sequences completed next, so an environment may have two of
    them and another one none. Priorities of the newest sequences are not kept.

    Attributes:
      shapes: see `Replay`.
    """

    def __init__(
        self,
        address: str,
        columns: Columns,
        replayed: PrioritizedReplay,
        schedule: UpdateSchedule,
        *,
        num_environments: int,
        max_wait: float,
    ):
        """Starts reading the queue; arguments as of `make_replay`."""
        self.shapes = replayed.shapes
        self._columns, self._replayed, self._schedule = columns, replayed, schedule
        self._num_environments = num_environments
        self._newest = Reader(
            address,
            NEWEST,
            self._assemble,
            in_flight=num_environments,
            max_wait=max_wait,
        )

    def sample(self, timeout: float = 0.0) -> tuple[np.ndarray, Sample] | None:
        """The newest sequences if a round begins, else those of the table while they are due."""
        if self._schedule.due == "replayed":
            batch = self._replayed.sample(timeout)
        elif (batch := self._newest.take(timeout)) is not None:
            self._begin_round()
        if batch is not None:
            self._schedule.done()
        return batch

    def set_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sends priorities asynchronously; Reverb ignores those of the newest sequences."""
        self._replayed.set_priorities(keys, priorities)

    def status(self) -> ReplayStatus:
        """Status of the table."""
        return self._replayed.status()

    def state(self) -> dict[str, Any]:
        """State of the table and of the schedule."""
        return {**self._replayed.state(), "schedule": self._schedule.state()}

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """Restores the table and the schedule."""
        self._replayed.restore(state, counters)
        self._schedule.restore(state["schedule"], counters)

    def close(self) -> None:
        """Ends the threads."""
        self._replayed.close()
        self._newest.close()

    def _begin_round(self) -> None:
        rounds = self._schedule.rounds + 1
        sequences = rounds * self._num_environments
        steps = sequences * self._columns.sequence.period  # includes the last rows of episodes
        rows = min(steps, self._columns.config.capacity)
        self._schedule.observe(steps=steps, rows=rows, sequences=sequences, rounds=rounds)

    def _assemble(self, items: Iterator[Item]) -> tuple[np.ndarray, Sample]:
        """A batch from the queue; called in the reader's thread."""
        batch = [next(items) for _ in range(self._num_environments)]
        rows, mask = self._columns.batch([item.columns for item in batch])
        keys = np.array([item.key for item in batch], np.uint64)
        return keys, Sample(rows, np.ones(len(batch), np.float32), mask)
