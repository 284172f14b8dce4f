"""Workers in turn: N learners whose gradients one parameter server applies, in one thread."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...agents.base import LearnerState, Params
from ..learner import Snapshot
from ..metrics import MetricsAccumulator
from .server import GradientServer
from .worker import Worker


class WorkersInTurn:
    """The learner of a loop of workers: steps each of them once, in their order; deterministic.

    Attributes:
      learning_since: steps of all workers at which the first began to learn, -1 before.
      metrics: means over the updates of all workers since the last flush.
    """

    def __init__(
        self,
        server: GradientServer,
        workers: Sequence[Worker],
        metrics: MetricsAccumulator,
    ):
        """Begins before the first update; every worker's learner adds to `metrics`."""
        self._server, self._workers = server, workers
        self.metrics, self.learning_since = metrics, -1

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
        return self._server.updates

    @property
    def metric_names(self) -> list[str]:
        """Those of every worker's learner."""
        return self._workers[0].learner.metric_names

    def publish(self) -> None:
        """Gives every worker the newest parameters."""
        for worker in self._workers:
            worker.learner.publish()

    def step(self) -> bool:
        """One call of updates of every worker for which one is due; whether there was any."""
        if self.learning_since < 0:
            each = [worker.replay.status() for worker in self._workers]
            if any(status.learning_since not in (None, -1) for status in each):
                self.learning_since = sum(status.steps or 0 for status in each)
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
            counters = np.array(counts, np.int64)
            replays[str(index)] = {"replay": worker.replay.state(), "counters": counters}
        return self._server.snapshot()._replace(replay={"workers": replays})

    def restore(self, snapshot: Snapshot) -> None:
        """Restores a snapshot; `restore_running` or `publish` must follow.

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
        self.learning_since = snapshot.counters["learning_since"]

    def running(self) -> list[Any]:
        """What the workers have fetched."""
        return [worker.updates.running(worker.learner.state) for worker in self._workers]

    def restore_running(self, state: Sequence[Any]) -> None:
        """Gives the workers back what they had fetched."""
        for worker, fetched in zip(self._workers, state, strict=True):
            learner = worker.learner
            learner.state = worker.updates.restore_running(learner.state, fetched)

    def close(self) -> None:
        """Closes every learner."""
        for worker in self._workers:
            worker.learner.close()
