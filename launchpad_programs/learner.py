"""The learner's node: a `training.Learner` that reports, and saves snapshots."""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from ..replay.interface import Replay, Stopped
from ..training.gradient_server import GradientServer
from ..training.learner import Learner
from ..training.parameters import ParameterServer, packing_of
from ..training.snapshots import SnapshotInterval, Snapshots
from ..training.stop import StopEvent
from .config import ProgramConfig
from .kinds import program_columns
from .node import CounterClient, LearningNode
from .peers import Peers

_WAIT_SECONDS = 1.0  # for an update to be due
_POLL_SECONDS = 0.1


class LearnerNode(LearningNode):
    """Updates, publishes, reports, and saves snapshots."""

    def __init__(
        self,
        config: ProgramConfig,
        learner: Learner | GradientServer,
        parameters: ParameterServer,
        peers: Peers,
        *,
        label: str = "learner",
        metric_names: Sequence[str],
        replay: Replay | None = None,
        kept: Any = None,
        logger: Any = None,
        serves: Mapping[str, Callable[..., Any]] | None = None,
        stop: StopEvent,
    ):
        """Restores a snapshot if the run is resumed. The node closes `learner`.

        It reports the status of `replay`, whose state `kept` keeps (see `Peers.replay`), and gives
        the metrics to Acme's `logger` too. Other nodes call the functions `serves` by their names.
        """
        run = config.run
        counter = CounterClient(peers.peer("counter/0"), f"{label}/0", config.restarts)
        snapshots = Snapshots(config.directory, keep=run.keep_snapshots)
        super().__init__(learner, counter, snapshots, stop)
        self._parameters, self._replay, self._kept, self._logger = parameters, replay, kept, logger
        vars(self).update(serves or {})
        self._names = [*metric_names, *program_columns(run)]
        self._counters: dict[str, Any] = {}
        if config.resumed_at is not None:
            snapshots.remove_newer(config.resumed_at)
            like = jax.eval_shape(lambda: learner.state)
            snapshot = snapshots.read(snapshots.newest_whole(), learner=like, replay=None)
            learner.restore(snapshot)
            self._counters = dict(snapshot.counters)
        every, seconds = run.schedule[2], run.snapshot_seconds
        self._interval = SnapshotInterval(self._steps, every=every, seconds=seconds)
        self._is_started, self._restarts = False, config.restarts

    def get(self, known_version: int) -> tuple[int, bytes | None]:
        """`ParameterServer.get`, which the other nodes call."""
        return self._parameters.get(known_version)

    def start(self) -> None:
        """Compiles, publishes the first parameters, and lets the actors begin."""
        self._counter.report(state="compiling")
        _unless_stopped(self._learner.compile, self._stop)
        self._learner.publish()
        self._counter.peer.call("open", self._counters, self._names)
        super().start()
        self._is_started = True

    def step(self) -> bool:
        """An update, for which it waits; a report and a snapshot if they are due."""
        self._learner.step(_WAIT_SECONDS)
        self._report_and_save()
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

    @property
    def _steps(self) -> int:
        """Of the run, as the counter answered last."""
        return int(self._counters.get("steps", 0))

    def _save(self, steps: int) -> None:
        snapshot = self._learner.snapshot()
        if self._kept is not None:
            with contextlib.suppress(Stopped):  # it died: a resumed run has an empty replay
                self._kept.keep(steps)
        counters = {**self._counters, **snapshot.counters}
        self._snapshots.save(steps, snapshot._replace(counters=counters))
        if self._kept is not None:
            with contextlib.suppress(Stopped):
                self._kept.prune(self._snapshots.steps())

    def _report(self) -> None:
        updates, learned = self._learner.updates, self._learned(self._learner.idle_seconds)
        values = {
            "state": "learning" if updates else "waiting for rows",
            "updates": updates,
            "version": self._parameters.version,
            "restarts": self._restarts,
            **learned,
        }
        if self._replay is not None:
            status = self._replay.status()
            values |= {"replay_rows": status.num_rows, "replay_sequences": status.num_sequences}
            if status.learning_since is not None:
                values["learning_since"] = status.learning_since
        self._counters = self._counter.report(**values)["counters"]
        if self._logger is not None and learned["metrics"]:
            self._logger.write({**learned["metrics"], "steps": self._steps, "updates": updates})


def make_learner(
    config: ProgramConfig, index: int, peers: Peers, *, stop: StopEvent
) -> LearnerNode:
    """The learner, restored if the run is resumed."""
    agent, options = config.make_agent(config.spec), config.acme_options()
    replay, kept = peers.replay(config.spec, agent.sequence)
    parameters = ParameterServer(packing_of(agent))
    learner = Learner.of_run(config.run, agent, replay, parameters=parameters)
    make_logger = options.logger_factory if options else None
    return LearnerNode(
        config,
        learner,
        parameters,
        peers,
        metric_names=learner.metric_names,
        replay=replay,
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
