"""The counter: grants steps to the actors, and gathers the reports of all nodes."""

import dataclasses
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..run_directory.actor_states import ActorStates
from ..run_directory.metrics_writer import MetricsTable
from ..runtime.intervals import next_multiple
from ..runtime.metrics import Counters, MetricsAccumulator, Rate
from ..runtime.stop import StopEvent
from .config import ProgramConfig
from .kinds import RESTARTS, index_of, kind_of, newest_values
from .leases import Lease, Leases
from .node import Node
from .peers import Peers
from .status import read_restarts, read_status, write_status

_STATUS_SECONDS = 0.5
_FINAL_SECONDS = 600.0  # after which an evaluator that says nothing is not waited for at the end


class Counter(Node):
    """Counts the steps of the run. Its public methods are called by the nodes, in any thread.

    A call without an answer is repeated, so each may come twice without harm. Steps are granted
    before they are taken: all actors together take exactly the steps of the run, or a few more
    where an actor steps several environments at once. Nothing is granted before the learner has
    started. Steps that an actor was granted when its process died are granted again.

    A counter that is restarted continues from status.json, which is half a second old at most.
    """

    def __init__(self, config: ProgramConfig, *, stop: StopEvent):
        """Starts at zero, or restores status.json if it is restarted."""
        super().__init__(stop)
        self._directory = config.directory
        self._lock = threading.RLock()
        self._steps, self._log_every, _ = config.schedule
        self._leases = Leases(self._steps, config.run.num_actors)
        self._counters = Counters()
        self._phase = "starting"
        self._evaluating_since = math.inf
        self._earlier_seconds, self._started = 0.0, time.monotonic()
        self._nodes: dict[str, dict[str, Any]] = {}  # the newest reports
        self._reported: dict[str, float] = {}
        self._answered: dict[str, list[int]] = {}  # the newest call of `report` of each node
        self._rates = {"steps": Rate(), "updates": Rate()}
        self._metrics = MetricsAccumulator()
        self._table: MetricsTable | None = None
        self._columns: list[str] = []
        self._newest_of = newest_values(config.run)
        self._next_row = 0
        self._next_status = 0.0
        if config.restarts:
            self._restore(read_status(self._directory))

    def open(self, counters: Mapping[str, Any], names: Sequence[str]) -> None:
        """Lets the actors begin; the learner calls it when it is ready.

        Args:
          counters: of the snapshot, `seconds` among them; empty for a new run.
          names: of columns, as for `MetricsTable`.
        """
        with self._lock:
            if self._phase != "starting":
                return
            self._begin(counters, names)
            self._phase = "collecting"
            write_status(self._directory, self.status())  # a restarted counter must know it

    def _begin(self, counters: Mapping[str, Any], names: Sequence[str]) -> None:
        kept = dict(counters)
        self._earlier_seconds = kept.pop("seconds", 0.0)
        self._counters = Counters(**kept)
        self._leases.restore(self._counters.steps, {})
        self._started = time.monotonic()
        # A program that ended before its first snapshot left metrics and starts from the beginning.
        resumed = kept or (self._directory / "metrics.csv").exists()
        resumed_at = self._counters.steps if resumed else None
        self._columns = list(names)
        self._table = MetricsTable(self._directory, names, resumed_at=resumed_at)
        self._next_row = self._counters.steps + self._log_every

    def _restore(self, status: Mapping[str, Any]) -> None:
        if status.get("phase", "starting") == "starting":
            return
        self._begin({name: status[name] for name in self._snapshot_counters()}, status["columns"])
        self._phase = status["phase"]
        if self._phase == "evaluating":
            self._evaluating_since = time.monotonic()
        held = {name: Lease(*lease) for name, lease in status["leases"].items()}
        self._leases.restore(self._counters.steps, held)
        for name, values in status["nodes"].items():
            self._note(name, values)

    def claim(
        self, name: str, restarts: int, number: int, taken: int, values: Mapping[str, Any]
    ) -> int:
        """An actor reports the steps that it took, and asks for more.

        Args:
          name: of the actor: "actor/0".
          restarts: of the actor before; calls of earlier processes are ignored.
          number: of the call, different from that of the process's last one.
          taken: steps since its last call.
          values: of the actor, for the status; `episodes` has those that ended since the last call,
            as `Actor.take_episodes` returns them.

        Returns:
          Steps that it may take; 0 for none now.
        """
        with self._lock:
            answer = self._leases.answered(name, restarts, number)
            if answer is None:
                self._note_actor(name, taken, dict(values))
                is_open = self._phase != "starting"
                rate = values.get("steps_per_second", 0.0)
                answer = self._leases.renew(name, restarts, number, taken, rate, is_open=is_open)
            return answer

    def _note_actor(self, name: str, taken: int, values: dict[str, Any]) -> None:
        episodes = values.pop("episodes", {})
        self._metrics.add_episodes(episodes)
        self._metrics.add_episodes(episodes, prefix=f"{name.replace('/', '_')}_")
        if returns := episodes.get("return"):
            self._counters.episodes += len(returns)
            values["return"] = float(np.mean(returns))
        self._counters.steps += taken
        self._note(name, values)

    def report(
        self, name: str, values: Mapping[str, Any], call: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """A node reports its state.

        Args:
          name: of the node.
          values: for the status; `metrics` for metrics.csv, means over `weight` updates (1 without
            it); the learner's `updates` and `learning_since`; the evaluator's `return` and, after
            its last evaluation, `final`.
          call: how often the node was restarted before, and the number of its call: an equal one
            is a repetition, which adds no metrics. None: it is not.

        Returns:
          `phase`, and `counters` with `seconds`.
        """
        with self._lock:
            kept = dict(values)
            metrics, weight = kept.pop("metrics", {}), kept.pop("weight", 1)
            if call is None or list(call) != self._answered.get(name):
                self._metrics.add(metrics, weight)
                self._answered[name] = list(call or ())
            if kind_of(name).publishes:
                self._note_learner(kept)
            is_final = kept.pop("final", False) and self._phase == "evaluating"
            if is_final and self._learner_is_up():
                self._phase = "finished"
            self._note(name, kept)
            return {"phase": self._phase, "counters": self._snapshot_counters()}

    def _note_learner(self, values: Mapping[str, Any]) -> None:
        self._counters.updates = values.get("updates", self._counters.updates)
        since = values.get("learning_since", self._counters.learning_since)
        if since < 0 < self._counters.updates:  # where the replay does not see every row
            since = self._counters.steps
        self._counters.learning_since = since
        if self._phase == "collecting" and since >= 0:
            self._phase = "learning"

    def keep(self, name: str, state: bytes) -> None:
        """Writes the packed state of an actor in the run directory."""
        ActorStates(self._directory, index_of(name)).write(state)

    def kept(self, name: str) -> bytes | None:
        """The packed state that an actor last gave to `keep`; None if there is none.

        Raises:
          ValueError: the file is damaged.
        """
        return ActorStates(self._directory, index_of(name)).read()

    def step(self) -> bool:
        """Updates the phase, status.json and metrics.csv; False."""
        with self._lock:
            now = time.monotonic()
            self._rates["steps"].add(now, self._counters.steps)
            self._rates["updates"].add(now, self._counters.updates)
            done = self._counters.steps >= self._steps and self._phase != "starting"
            if done and self._phase not in ("evaluating", "finished"):
                self._phase, self._evaluating_since = "evaluating", now
            is_late = now - self._evaluating_since > _FINAL_SECONDS
            if is_late and self._learner_is_up():
                self._phase = "finished"
            # The last row waits for the last evaluation: `close` writes it.
            if self._next_row <= self._counters.steps < self._steps:
                self._write_row()
            if now >= self._next_status or self._phase == "finished":
                write_status(self._directory, self.status())
                self._next_status = now + _STATUS_SECONDS
        return False

    def close(self) -> None:
        """Writes the last row and the last status."""
        with self._lock:
            self._write_row()
            if self._table is not None:
                self._table.close()
                self._table = None
            write_status(self._directory, self.status())

    def status(self) -> dict[str, Any]:
        """The state of the program, as JSON values.

        `phase` is `starting` until the learner has compiled, `collecting` until its first update,
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
            "restarts": read_restarts(self._directory),
            "leases": self._leases.held,
            "columns": self._columns,
            "nodes": {
                name: {**values, "silent_seconds": now - self._reported[name]}
                for name, values in sorted(self._nodes.items())
            },
        }

    def _note(self, name: str, values: Mapping[str, Any]) -> None:
        self._nodes[name] = {**self._nodes.get(name, {}), **values}
        self._reported[name] = time.monotonic()

    def _learner_is_up(self) -> bool:
        """Not from its death until it learns again: it has the last snapshot to save."""
        return all(
            self._nodes.get(name, {}).get("restarts", 0) == count
            for name, count in read_restarts(self._directory).items()
            if kind_of(name).publishes
        )

    def _snapshot_counters(self) -> dict[str, Any]:
        running = time.monotonic() - self._started if self._phase != "starting" else 0.0
        return {**dataclasses.asdict(self._counters), "seconds": self._earlier_seconds + running}

    def _write_row(self) -> None:
        if self._table is None:
            return
        status = self.status()
        clock = {
            "seconds": status["seconds"],
            "acting_steps_per_second": status["steps_per_second"],
            "learning_updates_per_second": status["updates_per_second"],
            "steps_per_second": status["steps_per_second"],
        }
        newest = {column: self._newest(*source) for column, source in self._newest_of.items()}
        newest[RESTARTS] = float(sum(status["restarts"].values()))
        self._table.write(self._counters, {**self._metrics.flush(), **newest}, clock)
        self._next_row = next_multiple(self._counters.steps, self._log_every)

    def _newest(self, label: str, value: str) -> float:
        """The mean over the nodes of a kind of a value of their newest reports."""
        nodes = [v for name, v in self._nodes.items() if kind_of(name).label == label]
        found = [values[value] for values in nodes if value in values]
        return float(np.mean(found)) if found else float("nan")


def make_counter(config: ProgramConfig, index: int, peers: Peers, *, stop: StopEvent) -> Counter:
    """The counter, which calls nobody."""
    return Counter(config, stop=stop)
