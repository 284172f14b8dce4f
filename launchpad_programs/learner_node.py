"""The learner's node as a plain class: `step` does a little, `run` steps until told to stop."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..experiments.snapshots import Snapshot, Snapshots
from ..replay.paced import LearnerReplay
from ..replay.waiting import Stopped
from .calls import CounterCalls
from .checkpoints import Checkpoints
from .learning import Learner
from .lifecycle import StopEvent
from .parameters import ParameterServer

_REPORT_SECONDS = 1.0
_POLL_SECONDS = 0.1


class LearnerNode:
    """Updates, publishes, reports, and saves snapshots."""

    def __init__(
        self,
        learner: Learner,
        replay: LearnerReplay,
        parameters: ParameterServer,
        counter: CounterCalls,
        directory: Path,
        *,
        metric_names: list[str],
        counters: Mapping[str, Any],
        snapshot_every: int,
        checkpoints: Checkpoints | None = None,
        report_seconds: float = _REPORT_SECONDS,
        stop: StopEvent,
    ):
        """Takes its parts.

        Args:
          learner: restored already, if the run is.
          replay: the learner's.
          parameters: the learner's.
          counter: is told how it goes.
          directory: the run directory.
          metric_names: as for `reports.Rows`.
          counters: of the snapshot; empty for a new run.
          snapshot_every: steps between snapshots.
          checkpoints: of the replay's server, if it keeps the sequences.
          report_seconds: between reports; 0 reports after every step.
          stop: when to end.
        """
        self._learner, self._replay, self._parameters = learner, replay, parameters
        self._counter, self._stop = counter, stop
        self._snapshots, self._checkpoints = Snapshots(directory), checkpoints
        self._metric_names, self._counters = metric_names, dict(counters)
        self._every, self._report_seconds = snapshot_every, report_seconds
        self._next_snapshot = self._after(self._counters.get("steps", 0))
        self._next_report = 0.0
        self._started = False

    def get(self, version: int) -> tuple[int, bytes | None]:
        """`ParameterServer.get`, which the other nodes call."""
        return self._parameters.get(version)

    def start(self) -> None:
        """Compiles, and lets the actors begin."""
        self._learner.compile()
        self._counter.start(self._counters, self._metric_names)
        self._started = True

    def step(self) -> None:
        """An update if one is due; a report and a snapshot if they are."""
        self._learner.step()
        if time.monotonic() >= self._next_report:
            self._report()
        if self._counters.get("steps", 0) >= self._next_snapshot:
            self.save()

    def run(self) -> None:
        """Compiles, steps until told to stop, and saves a snapshot."""
        try:
            self._counter.report("learner/0", {"state": "compiling"})
            if _beside(self.start, self._stop):
                while not self._stop.is_set():
                    self.step()
        except Stopped:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Saves a snapshot, if there is anything to save."""
        if self._started:
            self._end()
        self._snapshots.close()

    def save(self) -> None:
        """A snapshot, unless there is one at this step."""
        steps = self._counters["steps"]
        self._next_snapshot = self._after(steps)
        if steps in self._snapshots.steps():
            return
        snapshot = self._learner.save()
        if self._checkpoints is not None:
            self._checkpoints.keep(steps)
        counters = {**snapshot.counters, **self._counters}
        self._snapshots.save(steps, Snapshot(snapshot.learner, snapshot.replay, counters))
        if self._checkpoints is not None:
            self._checkpoints.prune(self._snapshots.steps())

    def _report(self) -> None:
        self._next_report = time.monotonic() + self._report_seconds
        look = self._learner.look()
        counters = self._replay.counters()
        values = {
            "state": "learning" if self._learner.updates else "waiting for rows",
            "metrics": {name: look[name] for name in self._metric_names if name in look},
            "updates": self._learner.updates,
            **{k: v for k, v in counters.items() if k == "learning_since"},
            "updates_per_second": look["updates_per_second"],
            "idle_share": look["idle_share"],
            "replay_rows": self._replay.num_rows,
            "replay_sequences": self._replay.num_sequences,
            "version": self._parameters.version,
        }
        self._counters = self._counter.report("learner/0", _finite(values))["counters"]

    def _end(self) -> None:
        """The last snapshot, at the counter's last word if it still gives one."""
        try:
            self._report()
            self._counter.report("learner/0", {"state": "saving a snapshot"})
        except Stopped:
            pass
        self.save()
        self._replay.close()

    def _after(self, steps: int) -> int:
        return (steps // self._every + 1) * self._every


def _beside(work: Callable[[], None], stop: StopEvent) -> bool:
    """Does the work in a thread of its own; False if the program ends before it is done."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set():
        thread.join(_POLL_SECONDS)
    if errors:
        raise errors[0]
    return not thread.is_alive()


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Without NaN, which JSON does not know."""
    return {k: v for k, v in values.items() if not (isinstance(v, float) and not np.isfinite(v))}
