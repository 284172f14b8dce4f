"""The learner's side of a replay over Reverb. `B` denotes the batch."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...datatypes import Sample
from ..interface import Draw, ReplayStatus, WaitTimeout
from ..rows import check_stored_as, sample_shapes, stored_as
from ..selectors import LARGEST_PRIORITY, check_priorities, importance_weights
from .reader import Reader
from .tables import TABLE, Layout
from .waiting import Server, ServerCalls

_CHECKPOINT = "reverb_checkpoint"


class ReverbReplay:
    """A `Replay` of batches drawn by a Reverb table, read ahead in a thread.

    For proportional and uniform selection. The table's rate limiter keeps the ratio of acting steps
    to updates. Reverb cannot mix uniform draws in, so `uniform_fraction` becomes a lower bound on
    the stored powers of priorities: with m their mean, `p ** alpha + uniform_fraction * m` gives
    the same mixture.

    Keys are Reverb's, uint64 `[B]`.
    """

    metric_names: tuple[str, ...] = ()

    def __init__(self, address: str, layout: Layout, *, num_envs: int, max_wait: float = 600.0):
        """Starts reading from the server at "host:port"; Reverb's draws have no seed.

        `max_wait` is in seconds, for the server at the start and for each answer.
        """
        self._layout, self._config = layout, layout.config
        self.shapes = sample_shapes(
            layout.environment_spec, layout.sequence, layout.config, num_envs=num_envs
        )
        server = Server(address, layout, max_wait=max_wait)
        self._client, self._calls = server.client, ServerCalls(server)
        self._table_size, self._largest, self._mean_power = 0, 1.0, 1.0
        self._reader = Reader(address, layout, batch_size=self._config.draw_size, max_wait=max_wait)

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """The next batch that the table has drawn."""
        batch = self._reader.take(timeout)
        if batch is None:
            return None
        # Relative to a uniform draw from the table as it was at each draw.
        ratios = batch.info.probability * batch.info.table_size
        # An item's power over its ratio is the mean power in the table.
        powers = batch.info.priority**self._config.priority_exponent
        self._mean_power = float(np.mean(powers / ratios))
        self._table_size = int(batch.info.table_size[-1])
        weights = importance_weights(ratios, 1, self._config.importance_exponent)
        rows, mask = self._layout.packing.unpack(batch.data)
        sample = Sample(rows, weights.astype(np.float32), mask)
        return Draw(batch.info.key, sample, self._config.updates_per_call)

    def set_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sends priorities asynchronously; WaitTimeout if the server accepts none any more."""
        alpha = self._config.priority_exponent
        largest = LARGEST_PRIORITY ** (1 / max(1.0, alpha))
        priorities = check_priorities(priorities, len(keys), largest)
        if self._config.selector == "uniform":
            return
        self._largest = float(np.max(priorities, initial=self._largest))
        if alpha and self._config.uniform_fraction:
            bound = self._config.uniform_fraction * self._mean_power
            priorities = (priorities**alpha + bound) ** (1 / alpha)
        updates = dict(zip(keys.tolist(), priorities.tolist(), strict=True))
        self._calls.submit(
            lambda: self._client.mutate_priorities(TABLE, updates), "priorities to be taken"
        )

    def metrics(self, keys: Any) -> dict[str, float]:
        """No metrics: Reverb does not say how old an item is."""
        del keys
        return {}

    def status(self) -> ReplayStatus:
        """At the newest batch; rows are estimated from sequences, actors count the steps.

        `new_priority` is the largest so far, as in prioritised experience replay.
        """
        return ReplayStatus(
            num_rows=self._table_size * self._layout.sequence.period,
            num_sequences=self._table_size,
            steps=None,
            learning_since=None,
            new_priority=self._largest,
        )

    def state(self) -> dict[str, Any]:
        """Makes Reverb write a checkpoint; the state holds its path."""
        try:
            path = self._calls.result(self._client.checkpoint, "Reverb's checkpoint")
        except RuntimeError as error:
            raise WaitTimeout(f"No checkpoint of Reverb: {error}") from error
        return {
            **stored_as(self._layout.sequence, self._config),
            _CHECKPOINT: np.frombuffer(path.encode(), np.uint8),
            "largest": np.array(self._largest),
            "mean_power": np.array(self._mean_power),
        }

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """See `Replay`; the rows are in the checkpoint that the server must have started with."""
        del counters
        if _CHECKPOINT not in state:
            raise ValueError(
                "The snapshot holds the rows of a learner's own replay, which cannot fill a Reverb "
                "table: resume with the selector and the launcher of the original run."
            )
        check_stored_as(state, self._layout.sequence, self._config)
        self._largest, self._mean_power = float(state["largest"]), float(state["mean_power"])

    def close(self) -> None:
        """Ends the threads."""
        self._reader.close()
        self._calls.close()
