"""Nodes with a learner: the learner's own, the parameter server's, and the workers'."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from ..replay.interface import Replay, ReplayStatus, Stopped
from ..training.learner import Learner, ParameterServer, packing_of
from ..training.loop import Loop
from ..training.snapshots import SnapshotInterval, Snapshots
from ..training.workers import STALENESS, GradientServer, LearningThread, Worker, WorkerFactory
from .config import ProgramConfig
from .kinds import program_columns, publisher_of
from .node import POLL_SECONDS, CounterClient, Node, Peers

_REPORT_SECONDS = 1.0
_WAIT_SECONDS = 1.0  # for an update to be due
_BEHIND_SECONDS = 1e-3
_ACTING = "acting and learning"


class LearningNode(Node):
    """A node with a `learner`: it reports once a second, and saves snapshots."""

    _save: Callable[[], None]
    _report: Callable[[], None]  # to the counter

    def __init__(
        self,
        config: ProgramConfig,
        name: str,
        learner: Any,
        peers: Peers,
        *,
        folder: Path,
        sharers: int = 1,
    ):
        """Snapshots are in a folder, as often as the run asks for of all `sharers` together."""
        super().__init__(peers)
        run, self.learner = config.run, learner
        self._counter = CounterClient(config, name, peers)
        self._snapshots = Snapshots(folder, keep=run.keep_snapshots)
        every, seconds = max(1, run.schedule[2] // sharers), run.snapshot_seconds
        self._interval = SnapshotInterval(0, every=every, seconds=seconds, clock=self._clock)
        self._steps, self._next_report = 0, 0.0  # its snapshots count the steps
        self._saved_updates = -1  # in the newest snapshot; -1 until the node has started
        self._last = self._clock.monotonic(), 0.0  # see `_learned`

    def start(self) -> None:
        """Rates and intervals begin now, at what was restored."""
        self._last = self._clock.monotonic(), 0.0
        self._saved_updates = self.learner.updates
        self._interval.saved(self._steps, took=0.0)

    def save(self) -> None:
        """Saves a snapshot, unless there is one of this step and update."""
        updates, began = self.learner.updates, self._clock.monotonic()
        if self._steps not in self._snapshots.steps() or updates != self._saved_updates:
            self._save()
        self._saved_updates = updates
        self._interval.saved(self._steps, took=self._clock.monotonic() - began)

    def _report_and_save(self) -> None:
        """A report and a snapshot, if they are due."""
        if self._clock.monotonic() >= self._next_report:
            self._report()
        if self._interval.is_due(self._steps):
            self.save()

    def _save_last(self) -> None:
        """A last report and a last snapshot."""
        with contextlib.suppress(Stopped):  # the counter may have ended
            self._report()
            self._counter.report(state="saving a snapshot")
        self.save()

    def _learned(self, idle_seconds: float, status: ReplayStatus | None) -> dict[str, Any]:
        """Values of a report: of the replay, and of the learner, who has waited so long by now."""
        now = self._clock.monotonic()
        self._next_report = now + _REPORT_SECONDS
        then, idle_before = self._last
        self._last = now, idle_seconds
        values = {
            "weight": self.learner.metrics.weight,
            "metrics": self.learner.metrics.flush(),
            "idle_share": min(1.0, (idle_seconds - idle_before) / max(now - then, 1e-9)),
        }
        if status is not None:
            values |= {"replay_rows": status.num_rows, "replay_sequences": status.num_sequences}
        return values


class LearnerNode(LearningNode):
    """Updates, publishes, reports, and saves snapshots."""

    def __init__(
        self,
        config: ProgramConfig,
        learner: Learner | GradientServer,
        parameters: ParameterServer,
        peers: Peers,
        *,
        metric_names: Sequence[str],
        replay: Replay | None = None,
        kept: Any = None,
        logger: Any = None,
    ):
        """Restores a snapshot if the run is resumed. For `kept` see `Peers.replay`."""
        super().__init__(config, publisher_of(config.run), learner, peers, folder=config.directory)
        self._replay, self._kept, self._logger = replay, kept, logger
        self.get = parameters.get  # which the other nodes call
        self._names = [*metric_names, *program_columns(config.run)]
        self._counters: dict[str, Any] = {}  # as the counter answered last
        if config.resumed_at is not None:
            self._snapshots.remove_newer(config.resumed_at)
            like, newest = jax.eval_shape(lambda: learner.state), self._snapshots.newest_whole()
            snapshot = self._snapshots.read(newest, learner=like, replay=None)
            learner.restore(snapshot)
            self._counters = dict(snapshot.counters)
            self._steps = self._counters["steps"]

    def start(self) -> None:
        """Compiles, publishes the first parameters, and lets the actors begin."""
        self._counter.report(state="compiling")
        self._compile()
        self.learner.publish()
        self._counter.peer.call("open", self._counters, self._names)
        super().start()

    def step(self) -> bool:
        """An update, for which it waits; a report and a snapshot if they are due, or no more is."""
        is_over = not self.learner.step(_WAIT_SECONDS) and self._counter.phase == "evaluating"
        self._report_and_save()
        if is_over:
            self.learner.publish()  # for the last evaluation
            self.save()
            self._counter.report(final=True)
        return True

    def close(self) -> None:
        """Reports and saves a last time, if it has started; closes its parts."""
        if self._saved_updates >= 0:
            self._save_last()
            self.learner.close()
        if self._logger is not None:
            self._logger.close()

    def _compile(self) -> None:
        """Compiles in a thread, which is left alone if the program ends before: raises Stopped."""
        done, errors = self._clock.event(), list[BaseException]()

        def guarded() -> None:
            try:
                self.learner.compile()
            except BaseException as error:
                errors.append(error)
            done.set()

        self._clock.thread(target=guarded, daemon=True).start()
        while not done.wait(POLL_SECONDS):
            if self._stop.is_set():
                raise Stopped("Stopped while compiling.")
        if errors:
            raise errors[0]

    def _save(self) -> None:
        snapshot, steps = self.learner.snapshot(), self._steps
        with contextlib.suppress(Stopped):  # the replay died: a resumed run has an empty one
            if self._kept is not None:
                self._kept.keep(steps)
        counters = {"steps": steps, **self._counters, **snapshot.counters}
        self._snapshots.save(steps, snapshot._replace(counters=counters))
        with contextlib.suppress(Stopped):
            if self._kept is not None:
                self._kept.prune(self._snapshots.steps())

    def _report(self) -> None:
        status = None
        with contextlib.suppress(Stopped):  # the replay died, and the program ends
            status = None if self._replay is None else self._replay.status()
        updates, learned = self.learner.updates, self._learned(self.learner.idle_seconds, status)
        state = "learning" if updates else "waiting for rows"
        values = {"state": state, "updates": updates, **learned}
        if status is not None and status.learning_since is not None:
            values["learning_since"] = status.learning_since
        self._counters = self._counter.report(**values, final=False)["counters"]
        self._steps = self._counters["steps"]
        if self._logger is not None and learned["metrics"]:
            self._logger.write({**learned["metrics"], "steps": self._steps, "updates": updates})


class WorkerNode(LearningNode):
    """The loop of a `worker` in one process, which is advanced as often as steps are granted."""

    def __init__(self, config: ProgramConfig, index: int, worker: Worker, peers: Peers):
        """Restores its own newest snapshot where the node continues."""
        run, folder = config.run, config.directory / "workers" / str(index)
        folder.mkdir(parents=True, exist_ok=True)
        name, learner = f"worker/{index}", worker.learner
        super().__init__(config, name, learner, peers, folder=folder, sharers=run.num_actors)
        self.worker, snapshots = worker, self._snapshots
        self._loop = Loop([worker.actor], learner, [worker.replay])
        if not config.continues:
            snapshots.remove_newer(-1)  # of a program that ended before its first snapshot
        elif snapshots.steps():
            snapshots.remove_newer(whole := snapshots.newest_whole())
            states = learner.state, self._loop.actor_states()
            like, actors = jax.eval_shape(lambda: states)
            self._loop.restore(snapshots.read(whole, learner=like, actors=actors, replay=None))
            self._steps = self._loop.counters.steps
        self._is_decoupled, self._staleness = run.workers.decoupled, 0.0
        self._learning: LearningThread | None = None

    def start(self) -> None:
        """Compiles, and fetches the first parameters."""
        self._counter.report(state="compiling")
        self.worker.actor.compile()
        self.learner.compile()
        self._loop.start()
        super().start()
        if self._is_decoupled:
            self._learning = LearningThread(self.learner, self._clock)

    def step(self) -> bool:
        """A step in each environment and the gradients that are due; whether it was granted."""
        self._report_and_save()
        if self._counter.phase == "evaluating":  # a server that was restarted may lack updates
            with self._no_updates():
                self.learner.publish()
                self._counter.is_granted(self._values)
                return self.learner.step()
        if not self._counter.is_granted(self._values):
            return False
        if self._learning is None:
            self._loop.advance()
        else:  # acts, unless a call is due that the learner has not drawn yet
            while self.worker.replay.schedule.due and not self._stop.is_set():
                self._learning.wake()
                self._stop.wait(_BEHIND_SECONDS)
            self._loop.act()
            self._learning.wake()
        before, self._steps = self._steps, self._loop.counters.steps
        self._counter.count(self._steps - before)
        return True

    def close(self) -> None:
        """Reports and saves a last time; closes the loop."""
        if self._learning is not None:
            self._learning.close()
        self._steps = self._loop.counters.steps  # a stop may come between step and update
        self._save_last()
        self._loop.close()

    def _save(self) -> None:
        """Saves its copy of the learner state, replay, schedule and actor states."""
        if self._steps:
            with self._no_updates():
                self._snapshots.save(self._steps, self._loop.snapshot())

    def _no_updates(self) -> contextlib.AbstractContextManager[None]:
        """A block beside which no update runs."""
        return contextlib.nullcontext() if self._learning is None else self._learning.paused()

    def _values(self) -> dict[str, Any]:
        due, episodes = bool(self.worker.replay.schedule.due), self._loop.take_episodes()
        return {"state": _ACTING, "staleness": self._staleness, "episodes": episodes, "due": due}

    def _report(self) -> None:
        status = self.worker.replay.status()
        with self._no_updates():
            learned = self._learned(self.worker.updates.waited_seconds, status)
        self._staleness = learned["metrics"].get(STALENESS, self._staleness)
        self._counter.report(state=_ACTING, **learned)


def make_learner(config: ProgramConfig, index: int, peers: Peers) -> LearnerNode:
    """The learner, restored if the run is resumed."""
    agent, options = config.make_agent(config.spec), config.acme_options()
    replay, kept = peers.replay(config.spec, agent.sequence)
    clock, parameters = peers.clock, ParameterServer(packing_of(agent), clock=peers.clock)
    learner = Learner.of_run(config.run, agent, replay, parameters=parameters, clock=clock)
    make = options.logger_factory if options else None
    return LearnerNode(
        config,
        learner,
        parameters,
        peers,
        metric_names=learner.metric_names,
        replay=replay,
        kept=kept,
        logger=make("learner", "updates", 0) if make else None,
    )


def make_parameter_server(config: ProgramConfig, index: int, peers: Peers) -> LearnerNode:
    """The parameter server: a learner's node whose updates are the gradients of workers."""
    agent = config.make_agent(config.spec)
    factory = WorkerFactory(config.run, agent, config.spec, peers.clock)
    parameters = ParameterServer(packing_of(agent), clock=peers.clock)
    server, names = factory.server(parameters), factory.metric_names
    node = LearnerNode(config, server, parameters, peers, metric_names=names)
    # What the workers call.
    vars(node).update(apply=server.apply, fetch=server.fetch, restored=server.restored)
    return node


def make_worker(config: ProgramConfig, index: int, peers: Peers) -> WorkerNode:
    """Worker number `index`, restored if it has a snapshot."""
    run, environment = config.run, config.make_actors_environment(index)
    factory = WorkerFactory(run, config.make_agent(environment.spec), environment.spec, peers.clock)
    call = peers.peer(publisher_of(run)).call
    worker = factory.worker(index, environment, call, restarts=config.restarts)
    return WorkerNode(config, index, worker, peers)
