"""The learner's side of two Reverb tables: the newest sequences, once each, and replayed ones.

`E` denotes the environments of all actors together.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..interface import Draw, ReplayStatus
from ..schedule import UpdateSchedule
from .layout import NEWEST, Layout
from .prioritized import PrioritizedReplay
from .reader import Reader


class RoundsReplay:
    """A `Replay` in the rounds of an `UpdateSchedule`, around a `PrioritizedReplay`.

    A round begins when E sequences have arrived through the queue, which holds as many: fast actors
    wait for the learner. They are the E sequences completed next, so an environment may have two of
    them and another one none. They are dropped unless there are on-policy updates. Priorities of
    the newest sequences are not kept.

    Attributes:
      shapes: see `Replay`.
      metric_names: see `Replay`.
    """

    metric_names: tuple[str, ...] = ()

    def __init__(
        self,
        address: str,
        layout: Layout,
        replayed: PrioritizedReplay,
        schedule: UpdateSchedule,
        *,
        num_environments: int,
        max_wait: float,
    ):
        """Starts reading the queue; arguments: see `make_replay`."""
        self.shapes = replayed.shapes
        self._layout, self._replayed, self._schedule = layout, replayed, schedule
        self._num_environments = num_environments
        self._newest = Reader(
            address,
            NEWEST,
            layout,
            batch_size=num_environments,
            in_order=True,
            max_wait=max_wait,
        )

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """The newest sequences if a round begins with them, else those that the table has drawn."""
        deadline = time.monotonic() + timeout
        while self._schedule.due != "replayed":
            newest = self._newest.take(deadline - time.monotonic())
            if newest is None:
                return None
            self._begin_round()
            if self._schedule.due == "newest":
                sample = self._layout.sample(newest.columns, np.ones(len(newest.keys)))
                return Draw(newest.keys, sample, self._schedule.done())
        batch = self._replayed.sample(deadline - time.monotonic())
        if batch is not None:
            self._schedule.done()
        return batch

    def set_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sends priorities asynchronously; Reverb ignores those of the newest sequences."""
        self._replayed.set_priorities(keys, priorities)

    def metrics(self, keys: Any) -> dict[str, float]:
        """None: Reverb does not tell how old an item is."""
        del keys
        return {}

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
        rounds, sequence = self._schedule.rounds + 1, self._layout.sequence
        rows = self._num_environments * (sequence.length + (rounds - 1) * sequence.period)
        self._schedule.observe(
            steps=rows,  # includes the last rows of episodes
            rows=min(rows, self._layout.config.capacity),
            sequences=rounds * self._num_environments,
            rounds=rounds,
        )
