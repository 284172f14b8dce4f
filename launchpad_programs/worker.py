"""A worker of a program: the loop of one process whose gradients a parameter server applies."""

import contextlib
import functools
from typing import Any

import jax

from ..replay.interface import Stopped
from ..training.gradient_server import STALENESS
from ..training.loop import Loop
from ..training.snapshots import SnapshotInterval, Snapshots
from ..training.stop import StopEvent
from ..training.workers import LearningThread, Worker, WorkerFactory
from .config import ProgramConfig
from .kinds import publisher_of
from .node import CounterClient, LearningNode
from .peers import Peers

_ACTING = "acting and learning"
_BEHIND_SECONDS = 1e-3


class WorkerNode(LearningNode):
    """A loop that is advanced as often as steps are granted."""

    def __init__(
        self,
        config: ProgramConfig,
        index: int,
        worker: Worker,
        peers: Peers,
        *,
        stop: StopEvent,
    ):
        """Restores its own newest snapshot where the node continues."""
        run = config.run
        counter = CounterClient(peers.peer("counter/0"), f"worker/{index}", config.restarts)
        folder = config.directory / "workers" / str(index)
        folder.mkdir(parents=True, exist_ok=True)
        snapshots = Snapshots(folder, keep=run.keep_snapshots)
        super().__init__(worker.learner, counter, snapshots, stop)
        self._worker = worker
        self._loop = Loop([worker.actor], worker.learner, [worker.replay])
        if not config.continues:
            snapshots.remove_newer(-1)  # of a program that ended before its first snapshot
        elif snapshots.steps():
            snapshots.remove_newer(whole := snapshots.newest_whole())
            states = worker.learner.state, self._loop.actor_states()
            learner, actors = jax.eval_shape(lambda: states)
            self._loop.restore(snapshots.read(whole, learner=learner, actors=actors, replay=None))
        every, seconds = max(1, run.schedule[2] // run.num_actors), run.snapshot_seconds
        self._interval = SnapshotInterval(self._steps, every=every, seconds=seconds)
        self._is_decoupled, self._staleness = run.workers.decoupled, 0.0
        self._learning: LearningThread | None = None

    def start(self) -> None:
        """Compiles, and fetches the first parameters."""
        self._counter.report(state="compiling")
        self._worker.actor.compile()
        self._worker.learner.compile()
        self._loop.start()
        super().start()
        if self._is_decoupled:
            self._learning = LearningThread(self._worker.learner)

    def step(self) -> bool:
        """A step in each environment and the gradients that are due; whether it was granted."""
        self._report_and_save()
        if not self._counter.is_granted(self._values):
            return False
        before = self._steps
        if self._learning is None:
            self._loop.advance()
        else:
            self._act_beside(self._learning)
        self._counter.count(self._steps - before)
        return True

    def close(self) -> None:
        """Reports and saves a last time; closes the loop."""
        if self._learning is not None:
            self._learning.close()
        with contextlib.suppress(Stopped):  # the counter may have ended
            self._report()
            self._counter.report(state="saving a snapshot")
        self.save()
        self._loop.close()

    @property
    def _steps(self) -> int:
        """Its own."""
        return self._loop.counters.steps

    def _save(self, steps: int) -> None:
        """Saves its copy of the learner state, replay, schedule and actor states."""
        if steps:
            with self._no_updates():
                self._snapshots.save(steps, self._loop.snapshot())

    def _act_beside(self, learning: LearningThread) -> None:
        """Acts, unless the learner is behind: a call is due that it has not drawn yet."""
        while self._worker.replay.is_due and not self._stop.is_set():
            learning.wake()
            self._stop.wait(_BEHIND_SECONDS)
        self._loop.act()
        learning.wake()

    def _no_updates(self) -> contextlib.AbstractContextManager[None]:
        """A block beside which no update runs."""
        return contextlib.nullcontext() if self._learning is None else self._learning.paused()

    def _values(self) -> dict[str, Any]:
        episodes = self._loop.take_episodes()
        return {"state": _ACTING, "staleness": self._staleness, "episodes": episodes}

    def _report(self) -> None:
        with self._no_updates():
            learned = self._learned(self._worker.updates.waited_seconds)
        self._staleness = learned["metrics"].get(STALENESS, self._staleness)
        status = self._worker.replay.status()
        self._counter.report(
            state=_ACTING,
            replay_rows=status.num_rows,
            replay_sequences=status.num_sequences,
            **learned,
        )


def make_worker(config: ProgramConfig, index: int, peers: Peers, *, stop: StopEvent) -> WorkerNode:
    """Worker number `index`, restored if it has a snapshot."""
    environment = config.make_actors_environment(index)
    factory = WorkerFactory(config.run, config.make_agent(environment.spec), environment.spec)
    server = peers.peer(publisher_of(config.run))
    worker = factory.worker(
        index,
        environment,
        apply=functools.partial(server.call, "apply"),
        get=functools.partial(server.call, "fetch"),
        restored=functools.partial(server.call, "restored"),
        restarts=config.restarts,
    )
    return WorkerNode(config, index, worker, peers, stop=stop)
