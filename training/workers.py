"""Workers around a parameter server: they act, store and compute gradients; it applies them."""

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..agents.base import Agent, LearnerState, Params
from ..datatypes import EnvironmentSpec, VectorEnvironment
from ..replay.local import LocalReplay
from ..replay.packing import TreePacking
from ..replay.rows import sample_shapes
from .actor import Actor
from .gradient_server import Apply, GradientServer, RemoteUpdates, StatePacking, metric_names
from .learner import Learner, Snapshot, update_shapes
from .loop import Loop
from .metrics import MetricsAccumulator
from .parameters import Get, ParameterServer
from .run_config import Purpose, RunConfig, derive_seed


class Worker(NamedTuple):
    """A learner whose gradients `updates` sends, its own replay, and the actor that fills it."""

    learner: Learner
    updates: RemoteUpdates
    replay: LocalReplay
    actor: Actor


class WorkerFactory:
    """Makes the server and the workers of a run, whose packings are the same."""

    def __init__(self, config: RunConfig, agent: Agent, spec: EnvironmentSpec):
        """`config` is resolved; `spec` is one environment's."""
        self._config, self._agent, self._spec = config, agent, spec
        num_envs = config.environments_per_replay
        calls = sample_shapes(spec, agent.sequence, config.replay, num_envs=num_envs)
        shapes = update_shapes(calls, config.replay.updates_per_call)
        state = jax.eval_shape(agent.init, jax.random.key(0))
        gradients, _ = jax.eval_shape(agent.gradients, state, shapes[0])
        self.gradients = TreePacking("A worker's gradients", gradients)
        self._states = StatePacking(agent, shapes)
        names = metric_names(agent, state, shapes[0])
        self.metric_names = [*names, *LocalReplay.metric_names]

    def server(self, parameters: ParameterServer | None = None) -> GradientServer:
        """The parameter server, at the run's beginning."""
        return GradientServer(
            self._agent,
            self.gradients,
            self._states,
            key=self._config.prng_keys()[0],
            max_staleness=self._config.workers.max_staleness,
            parameters=parameters,
        )

    def worker(
        self,
        index: int,
        environment: VectorEnvironment,
        *,
        apply: Apply,
        get: Get,
        restored: Callable[[], int] = lambda: 0,
        restarts: int = 0,
        metrics: MetricsAccumulator | None = None,
    ) -> Worker:
        """Worker number `index`, whose actor closes the environment.

        `apply`, `get` and `restored` are of the `GradientServer`, `metrics` of the learner.
        """
        config, agent, num_envs = self._config, self._agent, self._config.environments_per_replay
        seed = derive_seed(config.seed, Purpose.WORKER, index)
        if config.workers.num_workers == 1:  # it draws what one process draws
            seed = config.seed
        replay = LocalReplay(
            self._spec, agent.sequence, config.replay, num_envs=num_envs, seed=seed
        )

        def lost(version: int) -> None:  # each worker makes its share of these updates again
            replay.owe(-(-(version - restored()) // config.workers.num_workers))

        updates = RemoteUpdates(
            agent,
            self.gradients,
            self._states,
            apply=apply,
            get=get,
            worker=index,
            restarts=restarts,
            gradients_per_fetch=config.workers.gradients_per_fetch,
            fetches_first=not config.replay.on_policy,
            lost=lost,
        )
        learner = Learner.of_run(config, agent, replay, updates=updates, metrics=metrics)
        writer = replay.writer(range(num_envs))
        actor = Actor.of_run(config, agent, environment, index, writer, learner)
        return Worker(learner, updates, replay, actor)


class WorkersInTurn:
    """The learner of a loop of workers: steps each of them once, in their order; deterministic.

    Its methods are as a `Learner`'s. `learning_since` counts the steps of all workers.
    """

    def __init__(
        self, server: GradientServer, workers: Sequence[Worker], metrics: MetricsAccumulator
    ):
        """Begins before the first update; every worker's learner adds to `metrics`."""
        self._server, self._workers = server, workers
        self.metrics, self.learning_since = metrics, -1

    @property
    def state(self) -> LearnerState:
        """The server's learner state."""
        return self._server.state

    @property
    def params(self) -> Params:
        """The server's acting parameters."""
        return self._server.params

    @property
    def updates(self) -> int:
        """Gradients applied."""
        return self._server.updates

    @property
    def metric_names(self) -> list[str]:
        """Those of every worker's learner."""
        return self._workers[0].learner.metric_names

    def publish(self) -> None:
        """Gives every worker the newest parameters."""
        for worker in self._workers:
            worker.learner.publish()

    def step(self) -> bool:
        """One call of updates of every worker for which one is due; whether there was any."""
        if self.learning_since < 0:
            each = [worker.replay.status() for worker in self._workers]
            if any(status.learning_since not in (None, -1) for status in each):
                self.learning_since = sum(status.steps or 0 for status in each)
        stepped = [worker.learner.step() for worker in self._workers]
        return any(stepped)

    def finish(self) -> None:
        """Reads the outputs of all calls."""
        for worker in self._workers:
            worker.learner.finish()

    def snapshot(self) -> Snapshot:
        """The server's state and the replays, with the counters of each worker."""
        self.finish()
        replays = {}
        for index, worker in enumerate(self._workers):
            status = worker.replay.status()
            counts = [status.steps, worker.learner.updates, status.learning_since]
            counters = np.array(counts, np.int64)
            replays[str(index)] = {"replay": worker.replay.state(), "counters": counters}
        return self._server.snapshot()._replace(replay={"workers": replays})

    def restore(self, snapshot: Snapshot) -> None:
        """Restores a snapshot of as many workers; `restore_running` or `publish` must follow."""
        replays = snapshot.replay.get("workers", {})
        if len(replays) != len(self._workers):
            raise ValueError(f"it has {len(replays)} workers instead of {len(self._workers)}")
        self._server.restore(snapshot)
        for index, worker in enumerate(self._workers):
            saved = replays[str(index)]
            names = ("steps", "updates", "learning_since")
            counters = dict(zip(names, map(int, saved["counters"]), strict=True))
            worker.learner.restore(Snapshot(snapshot.learner, saved["replay"], counters))
        self.learning_since = snapshot.counters["learning_since"]

    def running(self) -> list[Any]:
        """What the workers have fetched."""
        return [worker.updates.running(worker.learner.state) for worker in self._workers]

    def restore_running(self, state: Sequence[Any]) -> None:
        """Gives the workers back what they had fetched."""
        for worker, fetched in zip(self._workers, state, strict=True):
            learner = worker.learner
            learner.state = worker.updates.restore_running(learner.state, fetched)

    def close(self) -> None:
        """Closes every learner."""
        for worker in self._workers:
            worker.learner.close()


class LearningThread:
    """Makes a learner's updates in a thread of its own, beside the thread that acts.

    Reactor's workers act and learn so (Gruslys et al. 2018, section 3.5). The acting thread calls
    the methods. The learner's replay is a `LocalReplay`, which other threads may write to.
    """

    def __init__(self, learner: Learner):
        self._learner, self._is_paused = learner, False
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="learning")
        self._work = self._pool.submit(self._learn)

    def wake(self) -> None:
        """Lets the thread make all updates that are due. Raises what ended the last ones.

        An update that becomes due while the thread comes to its end waits for the next call.
        """
        if self._work.done():
            self._work.result()
            self._work = self._pool.submit(self._learn)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No update runs in this block; it begins when the running one has ended."""
        self._is_paused = True
        try:
            concurrent.futures.wait([self._work])
            yield
        finally:
            self._is_paused = False

    def close(self) -> None:
        """Waits for the running update, and ends the thread."""
        self._is_paused = True
        self._pool.shutdown()

    def _learn(self) -> None:
        while not self._is_paused and self._learner.step():
            pass


def make_workers(config: RunConfig, agent: Agent, environments: list[VectorEnvironment]) -> Loop:
    """The loop of a run whose workers take turns in this process; arguments: see `make_loop`."""
    if config.workers.decoupled:
        raise ValueError("WorkerOptions.decoupled must be False in one process: it needs threads.")
    factory = WorkerFactory(config, agent, environments[0].spec)
    server, metrics = factory.server(), MetricsAccumulator()
    made = [
        factory.worker(index, environment, apply=server.apply, get=server.get, metrics=metrics)
        for index, environment in enumerate(environments)
    ]
    learner = WorkersInTurn(server, made, metrics)
    return Loop([each.actor for each in made], learner, [each.replay for each in made])
