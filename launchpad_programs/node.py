"""A node of a program, which works in steps until it is stopped; its side of the counter."""

import abc
import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Any

from ..replay.interface import Stopped
from ..replay.peer import Peer
from ..training.snapshots import SnapshotInterval, Snapshots
from ..training.stop import StopEvent

_POLL_SECONDS = 0.1
_REPORT_SECONDS = 1.0


class Node:
    """A node is run by one thread of its own; its public methods may be called by other nodes."""

    def __init__(self, stop: StopEvent):
        self._stop = stop

    def start(self) -> None:
        """Prepares its work; raises `Stopped` if the program ends before."""

    def step(self) -> bool:
        """Works for about a second, or until it is stopped; whether there was anything to do."""
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


class CounterClient:
    """Calls the counter in a node's name. However often a call is repeated, it is one.

    Attributes:
      peer: the counter.
      total: steps counted since the start.
    """

    def __init__(self, counter: Peer, name: str, restarts: int):
        self.peer, self._name, self._restarts = counter, name, restarts
        self._granted = self._taken = self.total = 0
        self._numbers = itertools.count()
        self._asked_at = time.monotonic()

    def report(self, taken: int | None = None, **values: Any) -> dict[str, Any]:
        """As `Counter.report`."""
        call = (self._restarts, next(self._numbers))
        answer: dict[str, Any] = self.peer.call("report", self._name, call, values, taken)
        return answer

    def is_granted(self, values: Callable[[], dict[str, Any]]) -> bool:
        """Whether a step may be taken; reports values, and asks for more, if none is left."""
        if self._taken >= self._granted:
            now, taken = time.monotonic(), self._taken
            rate = taken / max(now - self._asked_at, 1e-6)
            self._asked_at, self._taken = now, 0
            answer = self.report(taken, **values(), steps_per_second=rate)
            self._granted = answer["granted"]
        return self._taken < self._granted

    def count(self, taken: int) -> None:
        """Counts steps that were taken."""
        self._taken += taken
        self.total += taken


class LearningNode(Node, abc.ABC):
    """A node with a learner: it reports once a second, and saves snapshots."""

    def __init__(self, learner: Any, counter: CounterClient, snapshots: Snapshots, stop: StopEvent):
        super().__init__(stop)
        self._learner, self._counter, self._snapshots = learner, counter, snapshots
        self._interval: SnapshotInterval  # begins at the steps of the snapshot that was restored
        self._next_report = 0.0
        self._saved_updates = -1  # in the newest snapshot
        self._last = time.monotonic(), 0, 0.0  # see `_learned`

    def start(self) -> None:
        """Rates begin now."""
        self._last = time.monotonic(), self._learner.updates, 0.0
        self._saved_updates = self._learner.updates

    def save(self) -> None:
        """Saves a snapshot, unless there is one of this step and update."""
        steps, updates, began = self._steps, self._learner.updates, time.monotonic()
        if steps not in self._snapshots.steps() or updates != self._saved_updates:
            self._save(steps)
        self._saved_updates = updates
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
        """Metrics and rates since the last report; the learner has waited so long by now."""
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
