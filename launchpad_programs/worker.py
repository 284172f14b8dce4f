"""A worker of a program: the loop of one process whose gradients a parameter server applies."""

import contextlib
import functools
import time
from typing import Any

import jax

from ..replay.waiting import Stopped
from ..run_directory.snapshots import Snapshots
from ..runtime.actor import Actor
from ..runtime.intervals import SnapshotInterval
from ..runtime.learning_thread import LearningThread
from ..runtime.loop import Loop
from ..runtime.seeds import Purpose, derive_seed
from ..runtime.stop import StopEvent
from ..runtime.workers.assembly import WorkerParts
from ..runtime.workers.in_turn import Worker
from ..runtime.workers.remote_updates import STALENESS
from .config import ProgramConfig
from .counter_client import CounterClient
from .kinds import publisher_of
from .node import Node
from .peers import Peers

_ACTING = "acting and learning"
_BEHIND_SECONDS = 1e-3
_REPORT_SECONDS = 1.0


class WorkerNode(Node):
    """A loop that is advanced as often as steps are granted."""

    def __init__(
        self,
        worker: Worker,
        actor: Actor,
        counter: CounterClient,
        snapshots: Snapshots,
        *,
        save_every: int,
        save_seconds: float,
        decoupled: bool,
        stop: StopEvent,
    ):
        """Takes its parts.

        Args:
          worker: what it learns with.
          actor: writes into the worker's replay.
          counter: grants steps.
          snapshots: the worker's own, of which the newest whole one is restored.
          save_every: steps between snapshots.
          save_seconds: between snapshots, where the steps take longer.
          decoupled: see `WorkerOptions`.
          stop: when to end.
        """
        super().__init__(stop)
        self._worker, self._actor, self._counter = worker, actor, counter
        self._loop = Loop([actor], worker.learner, [worker.replay])
        self._snapshots = snapshots
        if snapshots.steps():
            snapshots.remove_newer(snapshots.newest_whole())
            like = jax.eval_shape(lambda: worker.learner.state), self._loop.actors_template()
            self._loop.restore(snapshots.restore(*like))
        self._is_decoupled, steps = decoupled, self._loop.counters.steps
        self._interval = SnapshotInterval(steps, every=save_every, seconds=save_seconds)
        self._next_report, self._reported_at, self._waited = 0.0, time.monotonic(), 0.0
        self._staleness = 0.0
        self._learning: LearningThread | None = None

    def start(self) -> None:
        """Compiles, and fetches the first parameters."""
        self._counter.report(state="compiling")
        self._actor.compile()
        self._worker.learner.compile()
        self._loop.start()
        if self._is_decoupled:
            self._learning = LearningThread(self._worker.learner)

    def step(self) -> bool:
        """A step in each environment and the gradients that are due; whether it was granted."""
        if time.monotonic() >= self._next_report:
            self._report(_ACTING)
        if not self._counter.is_granted(self._values):
            return False
        before = self._loop.counters.steps
        if self._learning is None:
            self._loop.advance()
        else:
            self._act_beside(self._learning)
        self._counter.count(self._loop.counters.steps - before)
        if self._interval.is_due(self._loop.counters.steps):
            self.save()
        return True

    def close(self) -> None:
        """Reports and saves a last time; closes the loop."""
        if self._learning is not None:
            self._learning.close()
        with contextlib.suppress(Stopped):  # the counter may have ended
            self._report("saving a snapshot")
        self.save()
        self._loop.close()

    def save(self) -> None:
        """Saves the worker's replay, schedule and actor states, unless there are none newer."""
        steps, began = self._loop.counters.steps, time.monotonic()
        if steps and steps not in self._snapshots.steps():
            with self._no_updates():
                self._snapshots.save(steps, self._loop.snapshot())
        self._interval.saved(steps, took=time.monotonic() - began)

    def _act_beside(self, learning: LearningThread) -> None:
        """Acts, unless the learner is behind: a call is due that it has not drawn yet."""
        while self._worker.replay.is_due and not self._stop.is_set():
            learning.check()
            self._stop.wait(_BEHIND_SECONDS)
        self._loop.act()
        learning.wake()
        learning.check()

    def _no_updates(self) -> contextlib.AbstractContextManager[None]:
        """A block beside which no update runs."""
        return contextlib.nullcontext() if self._learning is None else self._learning.paused()

    def _values(self) -> dict[str, Any]:
        episodes = self._loop.take_episodes()
        return {"state": _ACTING, "staleness": self._staleness, "episodes": episodes}

    def _report(self, state: str) -> None:
        now = time.monotonic()
        self._next_report = now + _REPORT_SECONDS
        with self._no_updates():
            weight = self._worker.learner.metrics.weight
            metrics = self._worker.learner.metrics.flush()
        self._staleness = metrics.get(STALENESS, self._staleness)
        before, self._waited = self._waited, self._worker.updates.waited_seconds
        seconds, self._reported_at = max(now - self._reported_at, 1e-9), now
        status = self._worker.replay.status()
        self._counter.report(
            state=state,
            metrics=metrics,
            weight=weight,
            waiting_share=min(1.0, (self._waited - before) / seconds),
            replay_rows=status.num_rows,
            replay_sequences=status.num_sequences,
        )


def make_worker(config: ProgramConfig, index: int, peers: Peers, *, stop: StopEvent) -> WorkerNode:
    """Worker number `index`, restored if it has a snapshot."""
    run, mine = config.run, config.run.environments_of(index)
    seed = derive_seed(run.seed, Purpose.ACTOR, index, *config.seed_numbers)
    environment = run.make_environment(seed=seed, num_envs=len(mine))
    parts = WorkerParts(run, config.make_agent(environment.spec), environment.spec)
    server = peers.peer(publisher_of(run))
    worker, actor = parts.worker(
        index,
        environment,
        apply=functools.partial(server.call, "apply"),
        get=functools.partial(server.call, "fetch"),
        restored=functools.partial(server.call, "restored"),
        restarts=config.restarts,
    )
    snapshots = Snapshots(config.directory / "workers" / str(index), keep=run.keep_snapshots)
    if not config.continues:
        snapshots.remove_newer(-1)  # of a program that ended before its first snapshot
    return WorkerNode(
        worker,
        actor,
        CounterClient(peers.peer("counter/0"), f"worker/{index}", config.restarts),
        snapshots,
        save_every=max(1, config.schedule[2] // run.num_actors),
        save_seconds=run.snapshot_seconds,
        decoupled=run.workers.decoupled,
        stop=stop,
    )
