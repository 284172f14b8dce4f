"""The learner's side of a replay over Reverb. `B` denotes the batch."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrivals import Arrivals
from ..interface import Draw, Replay, ReplayStatus, WaitTimeout
from ..local import LocalReplay
from ..rows import check_stored_as, sample_shapes, stored_as
from ..selectors import importance_weights
from ..tree_selector import LARGEST_PRIORITY, check_priorities
from .reader import Reader
from .tables import SEQUENCES, Layout
from .waiting import Server, ServerCalls

_CHECKPOINT = "reverb_checkpoint"


def make_replay(
    address: str, layout: Layout, *, num_envs: int, seed: int, max_wait: float = 600.0
) -> Replay:
    """Makes the learner's side of the replay: the class depends on selector and pace.

    Args:
      address: "host:port" of the server.
      layout: of the server's tables.
      num_envs: environments of all actors together.
      seed: of the learner's draws; Reverb's own draws have no seed.
      max_wait: seconds to wait for the server, at the start and for each answer.

    Raises:
      ValueError: the capacity is too small for one sequence per environment, or too large.
    """
    if layout.queued:
        return QueuedReplay(address, layout, num_envs=num_envs, seed=seed, max_wait=max_wait)
    return PrioritizedReplay(address, layout, num_envs=num_envs, max_wait=max_wait)


class QueuedReplay(LocalReplay):
    """A `LocalReplay` whose rows arrive through a queue.

    No more rows are taken from the queue than the schedule of updates permits, so the queue fills
    and fast actors wait: for each environment a few chunks at most are in flight. Rows in the queue
    are part neither of the status nor of the state.
    """

    def __init__(self, address: str, layout: Layout, *, num_envs: int, seed: int, max_wait: float):
        """Starts reading the queue; arguments: see `make_replay`."""
        spec, sequence = layout.environment_spec, layout.sequence
        super().__init__(spec, sequence, layout.config, num_envs=num_envs, seed=seed)
        self._arrivals = Arrivals(self)
        self._reader = Reader(address, layout, batch_size=1, max_wait=max_wait)

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """Draws if a call is due; takes rows from the queue until one is."""
        deadline = time.monotonic() + timeout
        while (draw := super().sample()) is None:
            item = self._reader.take(deadline - time.monotonic())
            if item is None:
                return None
            rows, origin = (column[0] for column in item.data)
            environment, writer, number = origin.tolist()
            self._arrivals.take_in(writer, [number], [environment], rows[:, None], self._add)
        return draw

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """Restores a state; the next row of each environment is the first of an episode."""
        super().restore(state, counters)
        self.cut()
        self._arrivals.clear()

    def close(self) -> None:
        """Ends the reader's thread."""
        self._reader.close()

    def _add(self, packed: Sequence[np.ndarray], environments: np.ndarray) -> bool:
        self.add_packed(packed, environments)
        return True


class PrioritizedReplay:
    """A `Replay` of batches drawn by a Reverb table, read ahead in a thread.

    For proportional and uniform selection. The table's rate limiter keeps the ratio of acting steps
    to updates. Reverb cannot mix uniform draws in, so `uniform_fraction` becomes a lower bound on
    the stored powers of priorities: with m their mean, `p ** alpha + uniform_fraction * m` gives
    the same mixture.

    Keys are Reverb's, uint64 `[B]`.
    """

    metric_names: tuple[str, ...] = ()

    def __init__(self, address: str, layout: Layout, *, num_envs: int, max_wait: float):
        """Starts reading; arguments: see `make_replay`."""
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
        sample = self._layout.sample(batch.data, weights)
        return Draw(batch.info.key, sample, self._config.updates_per_call)

    def set_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sends priorities asynchronously.

        Raises:
          ValueError: a priority is NaN, infinite, negative or too large.
          WaitTimeout: the server accepted nothing for `max_wait` seconds.
        """
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
            lambda: self._client.mutate_priorities(SEQUENCES, updates), "priorities to be taken"
        )

    def metrics(self, keys: Any) -> dict[str, float]:
        """None: Reverb does not say how old an item is."""
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
        """Makes Reverb write a checkpoint; the state holds its path.

        Raises:
          WaitTimeout: the server does not answer.
        """
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
        """Restores all but the rows: the server must have started with the checkpoint.

        Raises:
          ValueError: the state is that of a `LocalReplay`, or of a replay with other sequences or
            another selector.
        """
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
