"""The counter: grants steps to the actors, and gathers what all nodes report."""

import dataclasses
import math
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..experiments.loop import Counters
from .lifecycle import StopEvent
from .reports import Rate, Rows, Window, write_status

_STEP_SECONDS = 0.2
_STATUS_SECONDS = 0.5
_PORTIONS = 100  # at least so many grants in a run, so that no actor holds many steps
_LARGEST_PORTION = 50


class Counter:
    """Knows how far the run has come. Its public methods are called over Courier, in any thread.

    A call that got no answer is repeated, so each of them may come twice without harm. Steps are
    granted before they are taken, so that all actors together take exactly as many as the run has,
    or a few more, where an actor steps several environments at once. Nothing is granted before the
    learner has started.
    """

    def __init__(
        self,
        directory: Path,
        *,
        steps: int,
        log_every: int,
        num_actors: int,
        final_evaluation_seconds: float,
        stop: StopEvent,
    ):
        """Nothing has been counted yet.

        Args:
          directory: the run directory.
          steps: the run's last step.
          log_every: steps between rows of metrics.csv.
          num_actors: how many ask for steps.
          final_evaluation_seconds: how long the evaluator may take at the end.
          stop: when to end.
        """
        self._directory, self._stop = directory, stop
        self._lock = threading.RLock()
        self._answers: dict[str, tuple[int, int]] = {}  # to each actor's last claim
        self._steps, self._log_every = steps, log_every
        portion = steps // (_PORTIONS * num_actors)
        self._portion = min(max(portion, 1), _LARGEST_PORTION)
        self._patience = final_evaluation_seconds
        self._counters = Counters()
        self._granted = 0
        self._phase = "starting"
        self._evaluating_since = math.inf
        self._earlier_seconds, self._started = 0.0, time.monotonic()
        self._nodes: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, float] = {}
        self._rates = {"steps": Rate(), "updates": Rate()}
        self._window = Window()
        self._rows: Rows | None = None
        self._next_row = 0
        self._next_status = 0.0

    def start(self, counters: Mapping[str, Any], metric_names: Sequence[str]) -> None:
        """The learner is ready: the actors may begin. Calling it twice does no harm.

        Args:
          counters: of the snapshot, `seconds` among them; empty for a new run.
          metric_names: as for `Rows`.
        """
        with self._lock:
            if self._phase == "starting":
                self._start(counters, metric_names)

    def _start(self, counters: Mapping[str, Any], metric_names: Sequence[str]) -> None:
        kept = dict(counters)
        self._earlier_seconds = kept.pop("seconds", 0.0)
        self._counters = Counters(**kept)
        self._granted = self._counters.steps
        self._started = time.monotonic()
        self._rows = Rows(self._directory, metric_names, steps=self._counters.steps)
        self._next_row = self._counters.steps + self._log_every
        self._phase = "collecting"

    def claim(self, name: str, number: int, taken: int, values: Mapping[str, Any]) -> int:
        """An actor has taken its steps, and asks for more.

        Args:
          name: of the actor.
          number: of the call, different from that of the actor's last one.
          taken: steps since its last call.
          values: for the table, and of the `episodes` that ended lists of their `return`,
            `length` and extras.

        Returns:
          Steps that it may take; 0 for none now.
        """
        with self._lock:
            last, answer = self._answers.get(name, (-1, 0))
            if number != last:
                # An actor of several environments may have taken a few more than it was granted.
                self._granted += max(0, taken - answer)
                answer = self._grant(name, taken, dict(values))
                self._answers[name] = (number, answer)
            return answer

    def _grant(self, name: str, taken: int, values: dict[str, Any]) -> int:
        episodes = values.pop("episodes", {})
        returns = episodes.get("return", [])
        self._window.add_episodes(name, episodes)
        self._counters.episodes += len(returns)
        self._counters.steps += taken
        mean = {"return": float(np.mean(returns))} if returns else {}
        self._see(name, {**values, **mean})
        if self._phase == "starting":
            return 0
        grant = max(0, min(self._portion, self._steps - self._granted))
        self._granted += grant
        return grant

    def report(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """A node tells how it is.

        Args:
          name: of the node.
          values: for the table; `metrics` for metrics.csv; the learner's `updates` and
            `learning_since`; the evaluator's `return` and, after its last evaluation, `final`.

        Returns:
          `phase`, and the counters with `seconds`.
        """
        with self._lock:
            self._note(name, dict(values))
            return {"phase": self._phase, "counters": self._snapshot_counters()}

    def _note(self, name: str, values: dict[str, Any]) -> None:
        self._window.add_metrics(values.pop("metrics", {}))
        if name.startswith("learner"):
            self._counters.updates = values.get("updates", self._counters.updates)
            since = values.get("learning_since", self._counters.learning_since)
            if since < 0 < self._counters.updates:  # Reverb's table does not tell
                since = self._counters.steps
            self._counters.learning_since = since
            if self._phase == "collecting" and since >= 0:
                self._phase = "learning"
        if values.pop("final", False) and self._phase == "evaluating":
            self._phase = "finished"
        self._see(name, values)

    def step(self) -> None:
        """Brings status and metrics up to date."""
        with self._lock:
            self._update(time.monotonic())

    def _update(self, now: float) -> None:
        self._rates["steps"].add(now, self._counters.steps)
        self._rates["updates"].add(now, self._counters.updates)
        done = self._counters.steps >= self._steps and self._phase != "starting"
        if done and self._phase not in ("evaluating", "finished"):
            self._phase, self._evaluating_since = "evaluating", now
        if now - self._evaluating_since > self._patience:
            self._phase = "finished"
        # The last row waits for the last evaluation: `close` writes it.
        if self._rows is not None and self._next_row <= self._counters.steps < self._steps:
            self._write_row()
        if now >= self._next_status or self._phase == "finished":
            write_status(self._directory, self.status())
            self._next_status = now + _STATUS_SECONDS

    def run(self) -> None:
        """Steps until told to stop."""
        while not self._stop.wait(_STEP_SECONDS):
            self.step()
        self.close()

    def close(self) -> None:
        """Writes what is left."""
        with self._lock:
            if self._rows is not None:
                self._write_row()
                self._rows.close()
                self._rows = None
            write_status(self._directory, self.status())

    def status(self) -> dict[str, Any]:
        """Everything that the live table shows, as JSON values.

        `phase` is `starting` until the learner has compiled, `collecting` until it updates,
        `learning`, `evaluating` once all steps are taken, `finished` after the last evaluation.
        """
        now, rate = time.monotonic(), self._rates["steps"].per_second()
        left = max(self._steps - self._counters.steps, 0)
        return {
            "phase": self._phase,
            "last_step": self._steps,
            **self._snapshot_counters(),
            "steps_per_second": rate,
            "updates_per_second": self._rates["updates"].per_second(),
            "eta_seconds": left / rate if rate else None,
            "nodes": {
                name: {**values, "silent_seconds": now - self._seen[name]}
                for name, values in sorted(self._nodes.items())
            },
        }

    def _see(self, name: str, values: Mapping[str, Any]) -> None:
        self._nodes[name] = {**self._nodes.get(name, {}), **values}
        self._seen[name] = time.monotonic()

    def _seconds(self) -> float:
        if self._phase == "starting":
            return self._earlier_seconds
        return self._earlier_seconds + time.monotonic() - self._started

    def _snapshot_counters(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self._counters), "seconds": self._seconds()}

    def _write_row(self) -> None:
        assert self._rows is not None
        window, self._window = self._window, Window()
        self._rows.write(self.status(), window)
        self._next_row = (self._counters.steps // self._log_every + 1) * self._log_every
