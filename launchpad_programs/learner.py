"""The learner's node: a `runtime.Learner` that reports, and saves snapshots."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from ..replay.interface import Replay
from ..replay.waiting import Stopped
from ..run_directory.snapshots import Snapshots
from ..runtime.actors import make_run_learner
from ..runtime.intervals import SnapshotInterval
from ..runtime.learner import Learner
from ..runtime.metrics import Advice, episode_columns
from ..runtime.parameters import ParameterServer, packing_of
from ..runtime.stop import StopEvent
from ..runtime.workers.server import GradientServer
from .config import ProgramConfig
from .counter_client import CounterClient
from .kinds import program_columns
from .node import Node
from .peers import Caller, KeptReplay, Peers

_WAIT_SECONDS = 1.0  # for an update to be due
_REPORT_SECONDS = 1.0
_POLL_SECONDS = 0.1


class LearnerNode(Node):
    """Updates, publishes, reports, and saves snapshots."""

    name = "learner/0"

    def __init__(
        self,
        config: ProgramConfig,
        learner: Learner | GradientServer,
        replay: Replay | None,
        parameters: ParameterServer,
        counter: Caller,
        *,
        names: list[str],
        kept: KeptReplay | None = None,
        logger: Any = None,
        report_seconds: float = _REPORT_SECONDS,
        stop: StopEvent,
    ):
        """Takes its parts.

        Args:
          config: of the program; a snapshot is restored if it is resumed.
          learner: what updates; the node closes it.
          replay: the learner's, whose status is reported; None if it has none.
          parameters: the learner's.
          counter: receives reports.
          names: of columns, as for `MetricsTable`.
          kept: the replay's states; None if `Replay.state` has all of it.
          logger: Acme's, which receives the metrics too.
          report_seconds: between reports; 0 reports after every step.
          stop: when to end.
        """
        super().__init__(stop)
        self._learner, self._replay, self._parameters = learner, replay, parameters
        self._counter = CounterClient(counter, self.name, config.restarts)
        self._names, self._kept, self._logger = names, kept, logger
        self._report_seconds = report_seconds
        self._advice = Advice(config.run.entry, config.run.agent_config)
        self._snapshots = Snapshots(config.directory, keep=config.run.keep_snapshots)
        self._counters: dict[str, Any] = {}
        if config.resumed_at is not None:
            self._snapshots.remove_newer(config.resumed_at)
            snapshot = self._snapshots.restore(jax.eval_shape(lambda: learner.state))
            learner.restore(snapshot)
            self._counters = dict(snapshot.counters)
        self._interval = SnapshotInterval(
            self._counters.get("steps", 0),
            every=config.schedule[2],
            seconds=config.run.snapshot_seconds,
        )
        self._next_report = 0.0
        self._reported_at, self._reported = time.monotonic(), (learner.updates, 0.0)
        self._is_started, self._restarts = False, config.restarts

    def get(self, known_version: int) -> tuple[int, bytes | None]:
        """`ParameterServer.get`, which the other nodes call."""
        return self._parameters.get(known_version)

    def start(self) -> None:
        """Compiles, publishes the first parameters, and lets the actors begin."""
        self._counter.report(state="compiling")
        _unless_stopped(self._learner.compile, self._stop)
        self._learner.publish()
        self._counter.open(self._counters, self._names)
        self._reported_at = time.monotonic()
        self._is_started = True

    def step(self) -> bool:
        """An update, for which it waits; a report and a snapshot if they are due."""
        self._learner.step(_WAIT_SECONDS if self._report_seconds else 0.0)
        if time.monotonic() >= self._next_report:
            self._report()
        if self._interval.is_due(self._counters.get("steps", 0)):
            self.save()
        return True

    def close(self) -> None:
        """Reports and saves a last time, if it has started; closes its parts."""
        if self._is_started:
            with contextlib.suppress(Stopped):  # the counter may have ended
                self._report()
                self._counter.report(state="saving a snapshot")
            self.save()
            self._learner.close()
        if self._logger is not None:
            self._logger.close()

    def save(self) -> None:
        """Saves a snapshot, unless there is one of this step."""
        steps, began = self._counters["steps"], time.monotonic()
        if steps not in self._snapshots.steps():
            self._save(steps)
        self._interval.saved(steps, took=time.monotonic() - began)

    def _save(self, steps: int) -> None:
        snapshot = self._learner.snapshot()
        if self._kept is not None:
            self._kept.keep(steps)
        counters = {**self._counters, **snapshot.counters}
        self._snapshots.save(steps, snapshot._replace(counters=counters))
        if self._kept is not None:
            self._kept.prune(self._snapshots.steps())

    def _report(self) -> None:
        now = time.monotonic()
        seconds, self._reported_at = max(now - self._reported_at, 1e-9), now
        self._next_report = now + self._report_seconds
        updates, idle_seconds = self._reported
        self._reported = self._learner.updates, self._learner.idle_seconds
        weight = self._learner.metrics.weight
        metrics = self._learner.metrics.flush()
        values = {
            "state": "learning" if self._learner.updates else "waiting for rows",
            "metrics": metrics,
            "weight": weight,
            "updates": self._learner.updates,
            "updates_per_second": (self._learner.updates - updates) / seconds,
            "idle_share": min(1.0, (self._learner.idle_seconds - idle_seconds) / seconds),
            "version": self._parameters.version,
            "restarts": self._restarts,
        }
        if self._replay is not None:
            status = self._replay.status()
            values |= {"replay_rows": status.num_rows, "replay_sequences": status.num_sequences}
            if status.learning_since is not None:
                values["learning_since"] = status.learning_since
        if advice := self._advice.first(metrics):
            values["advice"] = advice
        self._counters = self._counter.report(**values)["counters"]
        if self._logger is not None and metrics:
            steps, updates = self._counters["steps"], self._learner.updates
            self._logger.write({**metrics, "steps": steps, "updates": updates})


def make_learner(
    config: ProgramConfig, index: int, peers: Peers, *, stop: StopEvent
) -> LearnerNode:
    """The learner, restored if the run is resumed."""
    run, agent = config.run, config.make_agent(config.spec)
    replay, kept = peers.replay(config.spec, agent.sequence)
    parameters = ParameterServer(packing_of(agent))
    learner = make_run_learner(run, agent, replay, parameters=parameters)
    names = [*episode_columns(run.entry), *learner.metric_names, *program_columns(run)]
    options = config.acme_options()
    make_logger = options.logger_factory if options else None
    return LearnerNode(
        config,
        learner,
        replay,
        parameters,
        peers.peer("counter/0"),
        names=names,
        kept=kept,
        logger=make_logger("learner", "updates", 0) if make_logger else None,
        stop=stop,
    )


def _unless_stopped(work: Callable[[], None], stop: StopEvent) -> None:
    """Does the work in a thread of its own, which is left alone if the program ends before.

    Raises:
      Stopped: the program ended.
    """
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
    if thread.is_alive():
        raise Stopped("Stopped while compiling.")
