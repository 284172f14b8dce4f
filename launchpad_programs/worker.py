"""The worker's node: the loop of one process whose gradients a parameter server applies."""

import contextlib
import functools
import time
from typing import Any

import jax

from ..replay.waiting import Stopped
from ..runtime.actor import Actor
from ..runtime.loop import Loop
from ..runtime.seeds import Purpose, derive_seed
from ..runtime.snapshots import Snapshots
from ..runtime.stop import StopEvent
from ..runtime.workers.assembly import WorkerParts
from ..runtime.workers.in_turn import Worker
from ..runtime.workers.learning_thread import LearningThread
from ..runtime.workers.remote_updates import STALENESS
from .config import ProgramConfig
from .counter_client import CounterClient
from .kinds import publisher_of
from .peers import Caller, Peers

_POLL_SECONDS = 0.1
_BEHIND_SECONDS = 1e-3
_REPORT_SECONDS = 1.0


class WorkerNode:
    """A loop that is advanced as often as the counter grants."""

    def __init__(
        self,
        config: ProgramConfig,
        index: int,
        worker: Worker,
        actor: Actor,
        parts: WorkerParts,
        counter: Caller,
        *,
        stop: StopEvent,
    ):
        """Takes its parts.

        Args:
          config: of the program; the worker's own snapshot is restored if it is resumed.
          index: 0 .. num_workers - 1.
          worker: what it learns with.
          actor: writes into the worker's replay.
          parts: of the run.
          counter: grants steps.
          stop: when to end.
        """
        self._worker, self._actor, self._parts, self._stop = worker, actor, parts, stop
        self._counter = CounterClient(counter, f"worker/{index}", config.restarts)
        self._loop = Loop([actor], worker.learner, [worker.replay])
        folder = config.directory / "workers" / str(index)
        self._snapshots = Snapshots(folder, keep=config.run.keep_snapshots)
        if not config.continues:
            self._snapshots.remove_newer(-1)  # of a program that ended before its first snapshot
        if self._snapshots.steps():
            self._snapshots.remove_newer(self._snapshots.newest_whole())
            like = jax.eval_shape(lambda: worker.learner.state), self._loop.actors_template()
            self._loop.restore(self._snapshots.restore(*like))
        self._is_decoupled = config.run.workers.decoupled
        self._save_every = max(1, config.schedule[2] // config.run.num_actors)
        self._next_save = self._loop.counters.steps + self._save_every
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
            self._report("acting and learning")
        if not self._counter.is_granted(self._values):
            return False
        before = self._loop.counters.steps
        if self._learning is None:
            self._loop.advance()
        else:
            self._act_beside(self._learning)
        self._counter.count(self._loop.counters.steps - before)
        if self._loop.counters.steps >= self._next_save:
            self.save()
        return True

    def run(self) -> None:
        """Steps until the program ends, and saves a snapshot, unless the worker fails."""
        with contextlib.closing(self._snapshots):
            with contextlib.suppress(Stopped):
                self.start()
                while not self._stop.is_set():
                    if not self.step():
                        self._stop.wait(_POLL_SECONDS)
            self.close()

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
        steps = self._loop.counters.steps
        self._next_save = steps + self._save_every
        if steps and steps not in self._snapshots.steps():
            with self._no_updates():
                self._snapshots.save(steps, self._loop.snapshot())

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
        return {
            "state": "acting and learning",
            "staleness": self._staleness,
            "episodes": self._loop.take_episodes(),
        }

    def _report(self, state: str) -> None:
        now = time.monotonic()
        self._next_report = now + _REPORT_SECONDS
        with self._no_updates():
            weight = self._worker.learner.metrics.weight
            metrics = self._worker.learner.metrics.flush()
        self._staleness = metrics.get(STALENESS, self._staleness)
        before, self._waited = self._waited, self._worker.updates.waited_seconds
        seconds, self._reported_at = max(now - self._reported_at, 1e-9), now
        values = {
            "state": state,
            "metrics": metrics,
            "weight": weight,
            "waiting_share": min(1.0, (self._waited - before) / seconds),
        }
        status = self._worker.replay.status()
        values |= {"replay_rows": status.num_rows, "replay_sequences": status.num_sequences}
        self._counter.report(**values)


def make_worker(config: ProgramConfig, index: int, peers: Peers, *, stop: StopEvent) -> WorkerNode:
    """Worker number `index`."""
    run, mine = config.run, config.run.environments_of(index)
    seed = derive_seed(run.seed, Purpose.ACTOR, index, *config.part)
    environment = run.make_environment(seed=seed, num_envs=len(mine))
    parts = WorkerParts(run, config.make_agent(environment.spec), environment.spec)
    server = peers.peer(publisher_of(run))
    worker, actor = parts.worker(
        index,
        environment,
        apply=functools.partial(server.call, "apply"),
        get=functools.partial(server.call, "fetch"),
        process=config.restarts,
    )
    return WorkerNode(config, index, worker, actor, parts, peers.peer("counter/0"), stop=stop)
