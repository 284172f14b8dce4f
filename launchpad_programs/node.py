"""A node of a program: a part that works in steps until it is stopped."""

import abc
import contextlib
import time
from typing import Any

from ..replay.waiting import Stopped
from ..run_directory.snapshots import Snapshots
from ..runtime.intervals import SnapshotInterval
from ..runtime.stop import StopEvent
from .counter_client import CounterClient

_POLL_SECONDS = 0.1
_REPORT_SECONDS = 1.0


class Node:
    """A node is run by one thread of its own; its public methods may be called by other nodes."""

    def __init__(self, stop: StopEvent):
        """Takes the event that ends `run`."""
        self._stop = stop

    def start(self) -> None:
        """Prepares its work; raises `Stopped` if the program ends before."""

    def step(self) -> bool:
        """Works for about a second at most; whether there was anything to do."""
        return False

    def close(self) -> None:
        """Saves what it must, and closes its parts."""

    def run(self) -> None:
        """Starts, steps until the program ends, and closes, unless an error ends it."""
        with contextlib.suppress(Stopped):
            self.start()
            while not self._stop.is_set():
                if not self.step():
                    self._stop.wait(_POLL_SECONDS)
        self.close()


class LearningNode(Node, abc.ABC):
    """A node with a learner: it reports once a second, and saves snapshots."""

    def __init__(self, learner: Any, counter: CounterClient, snapshots: Snapshots, stop: StopEvent):
        """Takes what has `updates` and `metrics`; snapshots are restored by the subclass."""
        super().__init__(stop)
        self._learner, self._counter, self._snapshots = learner, counter, snapshots
        self._interval: SnapshotInterval  # begins at the steps of the snapshot that was restored
        self._next_report = 0.0
        self._last = time.monotonic(), 0, 0.0  # see `_learned`

    def start(self) -> None:
        """Rates begin now."""
        self._last = time.monotonic(), self._learner.updates, 0.0

    def save(self) -> None:
        """Saves a snapshot, unless there is one of this step."""
        steps, began = self._steps, time.monotonic()
        if steps not in self._snapshots.steps():
            self._save(steps)
        self._interval.saved(steps, took=time.monotonic() - began)

    @property
    @abc.abstractmethod
    def _steps(self) -> int:
        """That its snapshots count."""

    @abc.abstractmethod
    def _save(self, steps: int) -> None:
        """Saves a snapshot."""

    @abc.abstractmethod
    def _report(self) -> None:
        """Reports to the counter."""

    def _report_and_save(self) -> None:
        """A report and a snapshot, if they are due."""
        if time.monotonic() >= self._next_report:
            self._report()
        if self._interval.is_due(self._steps):
            self.save()

    def _learned(self, idle_seconds: float) -> dict[str, Any]:
        """Metrics and rates since the last report, for the next one.

        Args:
          idle_seconds: that the learner has waited since the start.
        """
        now = time.monotonic()
        self._next_report = now + _REPORT_SECONDS
        then, updates, idle_before = self._last
        self._last = now, self._learner.updates, idle_seconds
        seconds = max(now - then, 1e-9)
        weight = self._learner.metrics.weight
        return {
            "metrics": self._learner.metrics.flush(),
            "weight": weight,
            "updates_per_second": (self._learner.updates - updates) / seconds,
            "idle_share": min(1.0, (idle_seconds - idle_before) / seconds),
        }
