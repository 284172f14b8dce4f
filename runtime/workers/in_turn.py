"""Workers in turn: N learners whose gradients one parameter server applies, in one thread.

To a loop they look like one learner and one replay, of which each worker has its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...agents.base import LearnerState, Params
from ...replay.interface import ReplayStatus
from ...replay.local import LocalReplay
from ...replay.store import SequenceStore
from ..learner import Learner
from ..metrics import MetricsAccumulator
from ..snapshots import Snapshot
from .remote_updates import RemoteUpdates
from .server import GradientServer


class Worker(NamedTuple):
    """What one worker learns with.

    Attributes:
      learner: of the replay; its updates are `updates`.
      updates: computes gradients.
      replay: of this worker alone.
    """

    learner: Learner
    updates: RemoteUpdates
    replay: LocalReplay


class WorkerStores:
    """The stores of all workers, as far as a loop needs them."""

    def __init__(self, stores: Sequence[SequenceStore]):
        self._stores = stores

    @property
    def capacity(self) -> int:
        """Rows that all of them keep."""
        return sum(store.capacity for store in self._stores)

    @property
    def nbytes(self) -> int:
        """Memory of all of them when they are full."""
        return sum(store.nbytes for store in self._stores)

    def cut(self) -> None:
        """As `SequenceStore.cut`."""
        for store in self._stores:
            store.cut()


class WorkerReplays:
    """The replays of all workers, as far as a loop needs them.

    Attributes:
      shapes: see `Replay`; the same for every worker.
      store: their stores.
      learning_since: steps of all workers at which the first began to learn, -1 before.
    """

    def __init__(self, replays: Sequence[LocalReplay]):
        """Takes the replay of each worker, at least one."""
        self._replays = replays
        self.shapes = replays[0].shapes
        self.store = WorkerStores([replay.store for replay in replays])
        self.learning_since = -1

    def status(self) -> ReplayStatus:
        """Sums over the workers."""
        each = [replay.status() for replay in self._replays]
        steps = sum(status.steps or 0 for status in each)
        learns = any(status.learning_since not in (None, -1) for status in each)
        if learns and self.learning_since < 0:
            self.learning_since = steps
        return ReplayStatus(
            num_rows=sum(status.num_rows for status in each),
            num_sequences=sum(status.num_sequences for status in each),
            steps=steps,
            learning_since=self.learning_since,
            new_priority=1.0,
        )


class WorkersInTurn:
    """Steps every worker once, in their order; deterministic.

    Attributes:
      replay: of all workers.
      metrics: means over the updates of all workers since the last flush.
      metric_names: their names.
    """

    def __init__(
        self,
        server: GradientServer,
        workers: Sequence[Worker],
        metrics: MetricsAccumulator,
        metric_names: Sequence[str],
    ):
        """Takes the parts.

        Args:
          server: applies the gradients.
          workers: at least one.
          metrics: to which every worker's learner adds.
          metric_names: their names.
        """
        self._server, self._workers = server, workers
        self.metrics, self.metric_names = metrics, metric_names
        self.replay = WorkerReplays([worker.replay for worker in workers])

    @property
    def state(self) -> LearnerState:
        """The server's learner state."""
        return self._server.state

    @property
    def params(self) -> Params:
        """The server's acting parameters."""
        return self._server.params

    @property
    def updates(self) -> int:
        """Gradients applied."""
        return self._server.version

    def publish(self) -> None:
        """Gives every worker the newest parameters."""
        for worker in self._workers:
            worker.learner.state = worker.updates.fetch(worker.learner.state)

    def step(self) -> bool:
        """One call of updates of every worker for which one is due; whether there was any."""
        stepped = [worker.learner.step() for worker in self._workers]
        return any(stepped)

    def finish(self) -> None:
        """Reads the outputs of all calls."""
        for worker in self._workers:
            worker.learner.finish()

    def snapshot(self) -> Snapshot:
        """The server's state and the replays, with the counters of each worker."""
        self.finish()
        replays = {}
        for index, worker in enumerate(self._workers):
            status = worker.replay.status()
            counts = [status.steps, worker.learner.updates, status.learning_since]
            replays[str(index)] = {
                "replay": worker.replay.state(),
                "counters": np.array(counts, np.int64),
            }
        return self._server.snapshot()._replace(replay={"workers": replays})

    def restore(self, snapshot: Snapshot) -> None:
        """Restores a snapshot; `restore_published` or `publish` must follow.

        Raises:
          ValueError: the snapshot is of other workers.
        """
        replays = snapshot.replay.get("workers", {})
        if len(replays) != len(self._workers):
            raise ValueError(f"it has {len(replays)} workers instead of {len(self._workers)}")
        self._server.restore(snapshot)
        for index, worker in enumerate(self._workers):
            saved = replays[str(index)]
            names = ("steps", "updates", "learning_since")
            counters = dict(zip(names, map(int, saved["counters"]), strict=True))
            worker.learner.restore(Snapshot(snapshot.learner, saved["replay"], counters))
        self.replay.learning_since = snapshot.counters["learning_since"]

    def published(self) -> list[dict[str, Any]]:
        """What the workers have fetched, for `restore_published`."""
        return [worker.updates.state(worker.learner.state) for worker in self._workers]

    def restore_published(self, states: Sequence[Mapping[str, Any]] | None) -> None:
        """Gives the workers back what they had fetched when the state was taken."""
        assert states is not None
        for worker, state in zip(self._workers, states, strict=True):
            worker.learner.state = worker.updates.restore(worker.learner.state, state)

    def close(self) -> None:
        """Closes every learner."""
        for worker in self._workers:
            worker.learner.close()
