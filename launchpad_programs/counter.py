"""The counter: grants steps to the actors, and gathers the reports of all nodes."""

import dataclasses
import logging
import logging.handlers
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..basics.files import read_sealed, sealed, write_json
from ..training.learner import Counters, MetricsAccumulator, Rate
from ..training.process import FILE_ONLY
from ..training.recorder import Recorder
from ..training.snapshots import actor_file
from .config import RESTARTS, STATUS, ProgramConfig, read_json
from .kinds import RESTARTS_COLUMN, kind_of, newest_values
from .node import Node, Peers

_STATUS_SECONDS = 0.5
_FINAL_SECONDS = 600.0  # after which the end does not wait for the last evaluation
_MAX_WARNINGS = 1000  # of this process, which are kept for the launcher
_PORTIONS = 100  # at least so many grants in a run, so that no actor holds many steps
_PORTION, _PORTION_SECONDS = 50, 0.25  # a grant is for so many steps, or for so long


class Lease(NamedTuple):
    """The newest report of a node, and the steps that it was granted and has not reported yet."""

    restarts: int = 0
    number: int = -1
    steps: int = 0


class Counter(Node):
    """Counts the steps of the run. The nodes call its public methods, in any thread, maybe twice.

    Steps are granted before they are taken, and after the learner has started: all actors together
    take exactly the steps of the run, or a few more where one steps several environments at once.
    Those that an actor held when its process died are granted again. A counter that is restarted
    continues from status.json, which is half a second old at most.
    """

    def __init__(self, config: ProgramConfig, peers: Peers):
        """Starts at zero, or restores status.json if it is restarted."""
        super().__init__(peers)
        self._run, self._directory = config.run, config.directory
        self._lock = threading.RLock()
        self._steps = config.run.schedule[0]
        self._largest = max(self._steps // (_PORTIONS * config.run.num_actors), 1)  # of the grants
        self._counters = Counters()
        # Until the learner has compiled; then collecting until its first update, learning,
        self._phase = "starting"  # evaluating once all steps are taken, and finished after that.
        self._evaluating_since, self._next_status = math.inf, 0.0
        self._nodes: dict[str, dict[str, Any]] = {}  # values of the newest reports
        self._leases: dict[str, Lease] = {}
        self._rates = {"steps": Rate(), "updates": Rate()}
        self._metrics = MetricsAccumulator()
        self._recorder: Recorder | None = None
        self._asked_to_stop = self._clock.event()
        self._warnings = logging.handlers.BufferingHandler(_MAX_WARNINGS)
        self._warnings.setLevel(logging.WARNING)
        logging.getLogger("retrax").addHandler(self._warnings)
        self._columns: list[str] = []
        self._newest_of = newest_values(config.run)
        if config.restarts:
            self._restore(read_json(self._directory / STATUS))

    def open(self, counters: Mapping[str, Any], names: Sequence[str]) -> None:
        """Lets the actors begin at the counters of a snapshot; `names` as in `Recorder`."""
        with self._lock:
            if self._phase == "starting":
                self._begin(counters, names)
                self._phase = "collecting"
                self._write_status()  # a restarted counter must know it

    def report(
        self, name: str, call: Sequence[int], values: Mapping[str, Any], taken: int | None = None
    ) -> dict[str, Any]:
        """A node reports its state; an actor also the steps that it took, and asks for more.

        Args:
          name: "actor/0".
          call: restarts of the node, and the number of its report, which grows. Repeated calls, and
            calls from replaced processes, are ignored.
          values: for the status; for metrics.csv `metrics`, means over `weight` updates or one, and
            `episodes` as in `Actor.take_episodes`; the learner's `updates` and `learning_since`;
            the evaluator's `return`; after its last evaluation, or last snapshot, `final`.
          taken: steps since the actor was last granted some; None asks for none.

        Returns:
          `phase`, `counters` with `seconds`, `granted`: steps that the actor may take, and
          `learned`: whether the last updates are made.
        """
        restarts, number = call
        with self._lock:
            lease = self._leases.get(name, Lease())
            if (restarts, number) > lease[:2]:
                self._note(name, dict(values))
                steps = lease.steps if restarts == lease.restarts else 0
                if taken is not None:
                    steps = self._grant(name, taken, values.get("steps_per_second", 0.0))
                self._leases[name] = lease = Lease(restarts, number, steps)
            return {
                "phase": self._phase,
                "learned": self._has_learned(),
                "counters": self._snapshot_counters(),
                "granted": lease.steps if restarts == lease.restarts else 0,
            }

    def keep(self, actor: int, state: bytes) -> None:
        """Writes the packed state of an actor in the run directory."""
        with sealed(actor_file(self._directory, actor)) as file:
            file.write(state)

    def kept(self, actor: int) -> bytes | None:
        """The state that an actor last gave to `keep`, if any; ValueError if it is damaged."""
        path = actor_file(self._directory, actor)
        return read_sealed(path) if path.is_file() else None

    def step(self) -> bool:
        """Updates the phase, status.json and metrics.csv; False."""
        with self._lock:
            now = self._clock.monotonic()
            if self._phase != "starting":  # counts of the snapshot are not known yet
                self._rates["steps"].add(now, self._counters.steps)
                self._rates["updates"].add(now, self._counters.updates)
            done = self._counters.steps >= self._steps and self._phase != "starting"
            if done and self._phase not in ("evaluating", "finished"):
                self._phase, self._evaluating_since = "evaluating", now
            elif self._phase == "evaluating" and self._is_over(now):
                self._phase, self._next_status = "finished", now
        # The last row waits for the last evaluation: `close` writes it.
        if self._recorder and self._recorder.next_row <= self._counters.steps < self._steps:
            self._write_row(self._recorder)
        with self._lock:
            if now >= self._next_status:
                self._write_status()
                self._next_status = now + _STATUS_SECONDS
        return False

    def close(self) -> None:
        """Writes the last row, if there is none, and the last status."""
        if self._recorder:
            if self._recorder.newest_row != self._counters.steps:
                self._write_row(self._recorder)
            self._recorder.close()
        logging.getLogger("retrax").removeHandler(self._warnings)
        with self._lock:
            self._write_status()

    def status(self) -> dict[str, Any]:
        """The state of the program, as JSON values."""
        rate = self._rates["steps"].per_second()
        left = max(self._steps - self._counters.steps, 0)
        restarts, nodes = read_json(self._directory / RESTARTS), dict(sorted(self._nodes.items()))
        for name in nodes.keys() & restarts.keys():
            if self._leases[name].restarts < restarts[name]:  # reported by a dead process
                nodes[name] = {**nodes[name], "state": "starting again"}
        return {
            "phase": self._phase,
            "last_step": self._steps,
            **self._snapshot_counters(),
            "steps_per_second": rate,
            "updates_per_second": self._rates["updates"].per_second(),
            "eta_seconds": left / rate if rate else None,
            "stop": self._asked_to_stop.is_set(),
            # The launcher logs these, some in the file alone.
            "notes": [
                (self._warnings.format(x), bool(x.exc_info) or getattr(x, FILE_ONLY, False))
                for x in self._warnings.buffer
            ],
            "restarts": restarts,
            "leases": self._leases,
            "columns": self._columns,
            "nodes": nodes,
        }

    def _begin(self, counters: Mapping[str, Any], names: Sequence[str]) -> None:
        kept, self._columns = dict(counters), list(names)
        seconds = kept.pop("seconds", 0.0)
        start = self._counters = Counters(**kept)
        # A program that ended before its first snapshot left metrics and starts from the beginning.
        resumed = kept or (self._directory / "metrics.csv").exists()
        options: Any = {"stop": self._asked_to_stop, "seconds": seconds, "clock": self._clock}
        options["resumed_at"] = start.steps - (start.steps >= self._steps) if resumed else None
        self._recorder = Recorder(self._run, self._directory, names, start=start, **options)

    def _restore(self, status: Mapping[str, Any]) -> None:
        if status.get("phase", "starting") == "starting":
            return
        self._leases = {name: Lease(*lease) for name, lease in status["leases"].items()}
        self._begin({name: status[name] for name in self._snapshot_counters()}, status["columns"])
        self._phase, self._nodes = status["phase"], status["nodes"]
        if self._phase == "evaluating":
            self._evaluating_since = self._clock.monotonic()

    def _note(self, name: str, values: dict[str, Any]) -> None:
        self._metrics.add(values.pop("metrics", {}), values.pop("weight", 1))
        episodes = values.pop("episodes", {})
        self._metrics.add_episodes(episodes)
        self._metrics.add_episodes(episodes, prefix=f"{name.replace('/', '_')}_")
        if returns := episodes.get("return"):
            self._counters.episodes += len(returns)
            values["return"] = float(np.mean(returns))
        if kind_of(name).publishes:
            self._counters.updates = values.get("updates", self._counters.updates)
            since = values.get("learning_since", self._counters.learning_since)
            if since < 0 < self._counters.updates:  # where the replay does not see every row
                since = self._counters.steps
            self._counters.learning_since = since
            if self._phase == "collecting" and since >= 0:
                self._phase = "learning"
        if self._phase != "evaluating":
            values.pop("final", None)  # of a phase that a restarted counter has forgotten
        self._nodes[name] = {**self._nodes.get(name, {}), **values}

    def _grant(self, name: str, taken: int, rate: float) -> int:
        """Grants steps to an actor that takes `rate` in a second, and has `taken` those it held."""
        self._counters.steps += taken
        held = sum(lease.steps for other, lease in self._leases.items() if other != name)
        left = max(0, self._steps - self._counters.steps - held) if self._phase != "starting" else 0
        return min(self._largest, max(_PORTION, int(rate * _PORTION_SECONDS)), left)

    def _final(self) -> set[bool]:
        """Of the nodes that have nothing left to do, whether they publish."""
        return {kind_of(name).publishes for name, x in self._nodes.items() if x.get("final")}

    def _has_learned(self) -> bool:
        """Whether the last snapshot is there, and no update is left, at workers either."""
        return True in self._final() and not any(x.get("due") for x in self._nodes.values())

    def _is_over(self, now: float) -> bool:
        """Whether all is done after the last step, or late, and the last snapshot is there."""
        if now - self._evaluating_since > _FINAL_SECONDS:
            return True in self._final()
        return False in self._final() and self._has_learned()

    def _snapshot_counters(self) -> dict[str, Any]:
        seconds = self._recorder.seconds if self._recorder else 0.0
        return {**vars(self._counters), "seconds": seconds}

    def _write_status(self) -> None:
        write_json(self._directory / STATUS, self.status(), indent=None)

    def _write_row(self, recorder: Recorder) -> None:
        """Writes a row in the node's own thread, beside which calls are answered."""
        with self._lock:
            rates = {name: rate.per_second() for name, rate in self._rates.items()}
            counters, returns = dataclasses.replace(self._counters), self._metrics.returns
            newest = {column: self._newest(*source) for column, source in self._newest_of.items()}
            restarts = sum(read_json(self._directory / RESTARTS).values())
            means = {**self._metrics.flush(), **newest, RESTARTS_COLUMN: float(restarts)}
        clock = dict.fromkeys(("acting_steps_per_second", "steps_per_second"), rates["steps"])
        clock["learning_updates_per_second"] = rates["updates"]
        recorder.write(counters, means, clock, returns)

    def _newest(self, label: str, value: str) -> float:
        """The mean over the nodes of a kind of a value of their newest reports."""
        nodes = self._nodes.items()
        found = [v[value] for name, v in nodes if kind_of(name).label == label and value in v]
        return float(np.mean(found)) if found else float("nan")


def make_counter(config: ProgramConfig, index: int, peers: Peers) -> Counter:
    """The counter, which calls nobody."""
    return Counter(config, peers)
