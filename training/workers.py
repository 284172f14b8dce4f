"""Workers around a parameter server: they act, store and compute gradients; it applies them.

A version is the number of gradients applied: of updates. The staleness of a gradient is the number
of versions between the parameters of which it was computed and those to which it is applied.
"""

import concurrent.futures
import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.base import Agent, Gradients, LearnerState, Params, Update
from ..basics.prng_keys import is_key, with_keys, without_keys
from ..datatypes import EnvironmentSpec, Sample, VectorEnvironment
from ..replay.interface import REAL, Clock, DirectPeer
from ..replay.local import LocalReplay
from ..replay.packing import TreePacking
from ..replay.rows import sample_shapes
from .learner import (
    Learner,
    MetricsAccumulator,
    ParameterServer,
    Snapshot,
    Updates,
    check_finite,
    copied,
    update_shapes,
)
from .loop import Actor, Loop
from .run_config import Purpose, RunConfig, derive_seed

STALENESS = "gradient_staleness"
DROPPED = "gradients_dropped"  # share of the gradients
REMOTE_METRICS = (STALENESS, DROPPED)  # added to the metrics of the agent's updates

Call = tuple[int, int]  # how often the worker was restarted before, and the number of the call


class Receipt(NamedTuple):
    """Whether a gradient was applied, or dropped, and how stale it was."""

    applied: bool
    staleness: int  # negative if a restarted server has not reached its version


class StatePacking:
    """Packs the arrays of a learner state that `gradients` and `acting_params` read.

    Optimiser states are not among them. PRNG keys travel as their data.
    """

    def __init__(self, agent: Agent, samples: Sequence[Sample]):
        """`samples` are the shapes of single updates' samples."""

        def read(state: LearnerState, sample: Sample) -> Any:
            return agent.gradients(state, sample), agent.acting_params(state)

        state = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
        self._read = [False] * len(jax.tree.leaves(state))
        for sample in samples:
            jaxpr = jax.make_jaxpr(read)(state, sample).jaxpr
            used = [id(v) for equation in jaxpr.eqns for v in equation.invars]
            known = {*used, *map(id, jaxpr.outvars)}
            pairs = zip(self._read, jaxpr.invars[: len(self._read)], strict=True)
            self._read = [before or id(variable) in known for before, variable in pairs]
        self._packing = TreePacking("The server's arrays", jax.eval_shape(self._select, state))

    def pack(self, state: LearnerState) -> bytes:
        """Copies the arrays from the device."""
        return self._packing.pack(self._select(state))

    def unpack(self, state: LearnerState, blob: bytes) -> LearnerState:
        """A state with these arrays in place of its own, on the device; ValueError of others."""
        leaves, structure = jax.tree.flatten(state)
        newer = iter(jax.device_put(self._packing.unpack(blob)))
        merged = [
            next(newer) if is_read else leaf
            for leaf, is_read in zip(leaves, self._read, strict=True)
        ]
        return with_keys(state, jax.tree.unflatten(structure, merged))

    def _select(self, state: LearnerState) -> list[Any]:
        leaves = jax.tree.leaves(without_keys(state))
        return [leaf for leaf, is_read in zip(leaves, self._read, strict=True) if is_read]


class GradientServer:
    """Applies gradients in the order of arrival, each in one jitted call, which donates `state`.

    `apply` and `fetch` may be called by any thread, and by other processes: a call that is repeated
    because its answer was lost changes nothing. `updates` is the version.
    `metrics` are empty where the workers are in processes of their own.
    """

    def __init__(
        self,
        agent: Agent,
        gradients: TreePacking,
        states: StatePacking,
        *,
        key: jax.Array,
        max_staleness: int | None = None,
        parameters: ParameterServer | None = None,
        clock: Clock = REAL,
    ):
        """Begins with `agent.init(key)`; `parameters` is for others that act."""
        self._agent, self._gradients, self._states = agent, gradients, states
        self._max_staleness = max_staleness
        self._packed = -1, b""  # the newest version that was fetched
        self._parameters, self.metrics = parameters, MetricsAccumulator()
        self._lock = clock.condition()
        self._answered: dict[int, tuple[Call, Receipt]] = {}
        self._apply = jax.jit(agent.apply, donate_argnums=0)
        self.state = jax.jit(agent.init)(key)
        self.updates = self._first = 0
        self._clock, self.busy_seconds, self._seen = clock, 0.0, -1
        self._started = clock.monotonic()

    @property
    def params(self) -> Params:
        """The newest acting parameters, in buffers that the next `apply` may overwrite."""
        return self._agent.acting_params(self.state)

    def apply(self, worker: int, call: Call, version: int, gradients: bytes) -> Receipt:
        """Applies a packed gradient of parameters of a version, or drops it if that is too old.

        Later calls of a worker are larger. One that was answered before is not applied again, nor
        is an earlier one. A gradient of another agent or config is a ValueError.
        """
        unpacked = self._gradients.unpack(gradients)
        with self._lock:
            answered, receipt = self._answered.get(worker, ((-1, -1), Receipt(False, 0)))
            restarts, number = call
            if (restarts, number) <= answered:
                return receipt
            staleness = self.updates - version
            applied = staleness >= 0
            if self._max_staleness is not None:
                applied = applied and staleness <= self._max_staleness
            if applied:
                started = self._clock.monotonic()
                self.state = jax.block_until_ready(self._apply(self.state, unpacked))
                self.busy_seconds += self._clock.monotonic() - started
                self.updates += 1
            receipt = Receipt(applied, staleness)
            self._answered[worker] = (restarts, number), receipt
            self._lock.notify_all()
            return receipt

    @property
    def idle_seconds(self) -> float:
        """Time since it was compiled in which no gradient was applied."""
        return self._clock.monotonic() - self._started - self.busy_seconds

    def compile(self) -> None:
        """Compiles `apply`; changes nothing. Workers may have begun to call a restarted server."""
        state = self.snapshot().learner
        zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), self._gradients.like)
        for _ in range(2):  # a computed state may have another weak type than the first
            state = self._apply(state, zeros)
        jax.block_until_ready(state)
        self._started = self._clock.monotonic()

    def step(self, timeout: float) -> bool:
        """Waits for an update since the last `step`; publishes parameters if they are wanted."""
        with self._lock:
            is_newer = self._lock.wait_for(lambda: self.updates > self._seen, timeout)
            self._seen = self.updates
        parameters = self._parameters
        if parameters is not None and parameters.wanted and parameters.version < self._seen:
            self.publish()
        return is_newer

    def publish(self) -> None:
        """Makes the newest parameters available to those that act elsewhere."""
        with self._lock:
            if self._parameters is not None:
                self._parameters.publish(self.updates, self.params)

    def fetch(self, known_version: int) -> tuple[int, bytes | None]:
        """The newest version and its bytes, packed once; None if the caller has it already."""
        with self._lock:
            if known_version == self.updates:
                return self.updates, None
            if self._packed[0] != self.updates:
                self._packed = self.updates, self._states.pack(self.state)
            return self._packed

    def snapshot(self) -> Snapshot:
        """The state and `updates`; the workers have the replays."""
        with self._lock:
            return Snapshot(copied(self.state), {}, {"updates": self.updates})

    def restore(self, snapshot: Snapshot) -> None:
        """Restores the learner state and the counter `updates`."""
        with self._lock:
            self.state = jax.device_put(copied(snapshot.learner))
            self.updates = self._first = snapshot.counters["updates"]
            self._packed = -1, b""

    def restored(self) -> int:
        """The version at which it began."""
        return self._first

    def close(self) -> None:
        """Does nothing: it has no threads."""


class RemoteUpdates(Updates):
    """Updates whose gradients are computed here and applied elsewhere.

    The state that it is given and returns is a copy of the server's at the newest fetch, of
    `version` (-1 before the first); optimiser states keep their initial values.

    All gradients of one version, other workers' too, draw different noise: the PRNG keys
    in the state are folded with a number of the worker and the gradient. Number 0 keeps the keys,
    so that a single worker draws what one process draws.
    """

    def __init__(
        self,
        agent: Agent,
        gradients: TreePacking,
        states: StatePacking,
        *,
        call: Callable[..., Any],
        worker: int = 0,
        restarts: int = 0,
        gradients_per_fetch: int = 1,
        fetches_first: bool = True,
        lost: Callable[[int], None],
        clock: Clock = REAL,
    ):
        """Updates of worker number `worker`; packings and `call` belong to its `GradientServer`.

        Where `fetches_first`, a fetch precedes the gradient (Reactor, 3.5); if not, it follows, and
        the worker acts with what its next gradient is computed of (ACER, Algorithm 2). `lost` is
        called with the version of the copy when the server has restarted with an older one.
        """
        super().__init__(agent)
        self._agent, self._packing, self._states, self._clock = agent, gradients, states, clock
        self._call, self._lost = call, lost
        self._worker, self._restarts, self._calls = worker, restarts, itertools.count()
        self._per_fetch, self._fetches_first = gradients_per_fetch, fetches_first
        self._sent, self.version = 0, -1
        self.waited_seconds = 0.0  # for answers of the server

        def compute(state: LearnerState, sample: Sample, number: int) -> tuple[Gradients, Update]:
            return agent.gradients(_with_own_keys(state, number), sample)

        self._compute = jax.jit(compute)

    def __call__(
        self, state: LearnerState, sample: Sample, count: int
    ) -> tuple[LearnerState, Update]:
        """Each update is a gradient; priorities and metrics are on the host, checked, then sent."""
        outputs = []
        for index in range(count):
            since_fetch = self._sent % self._per_fetch
            if self._fetches_first and since_fetch == 0:
                state = self.newest(state)
            batch = jax.tree.map(lambda x, i=index: np.split(x, count)[i], sample)
            number = self._worker * self._per_fetch + since_fetch
            grads, update = self._compute(state, batch, number)
            update = jax.device_get(update)
            check_finite(update, self._sent, 1)
            receipt = self._send(grads)
            sent: dict[str, Any] = {STALENESS: receipt.staleness, DROPPED: not receipt.applied}
            outputs.append(Update(update.priorities, {**update.metrics, **sent}))
            if not self._fetches_first and self._sent % self._per_fetch == 0:
                state = self.newest(state)
        means = jax.tree.map(lambda *x: np.mean(x), *(update.metrics for update in outputs))
        priorities: Any = np.concatenate([update.priorities for update in outputs])
        return state, Update(priorities, means)

    def metric_names(self, state: LearnerState, sample: Sample, count: int) -> list[str]:
        """See `Updates`."""
        shape = update_shapes([sample], count)[0]
        return metric_names(jax.eval_shape(self._agent.gradients, state, shape)[1])

    def compile(self, state: LearnerState, shapes: Sequence[Sample], count: int) -> None:
        """Compiles the gradients of single updates; sends nothing."""
        for shape in update_shapes(shapes, count):
            self._compute(state, jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shape), 0)

    def newest(self, state: LearnerState) -> LearnerState:
        """A copy of the server's state; the given one if it is as new."""
        version, blob = self._timed("fetch", self.version)
        if blob is None:
            return state
        if version < self.version:
            self._lost(self.version)
        self.version = version
        return self._states.unpack(state, blob)

    def running(self, state: LearnerState) -> dict[str, Any]:
        """The copy, its version, and how many gradients were sent: plain data."""
        copy = self._states.pack(state)
        return {"version": self.version, "sent": self._sent, "copy": copy}

    def restore_running(self, state: LearnerState, saved: Mapping[str, Any]) -> LearnerState:
        """The copy that `running` was given, made from another one."""
        self.version, self._sent = saved["version"], saved["sent"]
        return self._states.unpack(state, saved["copy"])

    def _send(self, gradients: Gradients) -> Receipt:
        call = self._restarts, next(self._calls)
        self._sent += 1
        blob = self._packing.pack(gradients)
        return Receipt(*self._timed("apply", self._worker, call, self.version, blob))

    def _timed(self, method: str, *arguments: Any) -> Any:
        started = self._clock.monotonic()
        answer = self._call(method, *arguments)
        self.waited_seconds += self._clock.monotonic() - started
        return answer


def metric_names(update: Update) -> list[str]:
    """Names of the metrics of a worker's updates, from one update or its shapes."""
    return [*sorted(update.metrics), *REMOTE_METRICS]


def _with_own_keys(state: LearnerState, number: int) -> LearnerState:
    """The state with its PRNG keys folded with a number; as it is for number 0."""

    def folded(leaf: jax.Array) -> jax.Array:
        if not is_key(leaf):
            return leaf
        fold = jax.random.fold_in
        for _ in leaf.shape:
            fold = jax.vmap(fold, in_axes=(0, None))
        return jnp.where(number == 0, leaf, fold(leaf, number))

    return jax.tree.map(folded, state)


class Worker(NamedTuple):
    """A learner whose gradients `updates` sends, its own replay, and the actor that fills it."""

    learner: Learner
    updates: RemoteUpdates
    replay: LocalReplay
    actor: Actor


class WorkerFactory:
    """Makes the server and the workers of a run, whose packings are the same."""

    def __init__(self, config: RunConfig, agent: Agent, spec: EnvironmentSpec, clock: Clock = REAL):
        """`config` is resolved; `spec` is one environment's."""
        self._config, self._agent, self._spec, self._clock = config, agent, spec, clock
        num_envs = config.environments_per_replay
        calls = sample_shapes(spec, agent.sequence, config.replay, num_envs=num_envs)
        shapes = update_shapes(calls, config.replay.updates_per_call)
        state = jax.eval_shape(agent.init, jax.random.key(0))
        gradients, update = jax.eval_shape(agent.gradients, state, shapes[0])
        self.gradients = TreePacking("A worker's gradients", gradients)
        self._states = StatePacking(agent, shapes)
        self.metric_names = [*metric_names(update), *LocalReplay.metric_names]

    def server(self, parameters: ParameterServer | None = None) -> GradientServer:
        """The parameter server, at the run's beginning."""
        return GradientServer(
            self._agent,
            self.gradients,
            self._states,
            key=self._config.prng_keys()[0],
            max_staleness=self._config.workers.max_staleness,
            parameters=parameters,
            clock=self._clock,
        )

    def worker(
        self,
        index: int,
        environment: VectorEnvironment,
        call: Callable[..., Any],
        *,
        restarts: int = 0,
    ) -> Worker:
        """Worker number `index`; `call` is `Peer.call` of the `GradientServer`."""
        config, agent, num_envs = self._config, self._agent, self._config.environments_per_replay
        seed = derive_seed(config.seed, Purpose.WORKER, index)
        if config.workers.num_workers == 1:  # it draws what one process draws
            seed = config.seed
        replay = LocalReplay(
            self._spec, agent.sequence, config.replay, num_envs=num_envs, seed=seed
        )

        def lost(version: int) -> None:  # each worker makes its share of these updates again
            replay.owe(-(-(version - call("restored")) // config.workers.num_workers))

        updates = RemoteUpdates(
            agent,
            self.gradients,
            self._states,
            call=call,
            worker=index,
            restarts=restarts,
            gradients_per_fetch=config.workers.gradients_per_fetch,
            fetches_first=not config.replay.on_policy,
            lost=lost,
            clock=self._clock,
        )
        learner = Learner.of_run(config, agent, replay, updates=updates, clock=self._clock)
        writer = replay.writer(range(num_envs))
        actor = Actor.of_run(config, agent, environment, index, writer, learner)
        return Worker(learner, updates, replay, actor)


class WorkersInTurn:
    """The learner of a loop of workers: steps each of them once, in their order; deterministic.

    Its methods are as a `Learner`'s. `learning_since` counts the steps of all workers.
    """

    def __init__(self, server: GradientServer, workers: Sequence[Worker]):
        """Begins before the first update; every worker's learner adds to the server's metrics."""
        self._server, self._workers = server, workers
        self.metrics, self.metric_names = server.metrics, workers[0].learner.metric_names
        self.learning_since = -1
        for worker in workers:
            worker.learner.metrics = server.metrics

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

    def __init__(self, learner: Learner, clock: Clock = REAL):
        self._learner, self._is_paused = learner, False
        self._pool = clock.executor(1, thread_name_prefix="learning")
        self._work = self._pool.submit(self._learn)

    def wake(self) -> None:
        """Lets the thread make all updates that are due now; raises what ended the last ones."""
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
    server = factory.server()
    call = DirectPeer(server).call
    made = [factory.worker(index, each, call) for index, each in enumerate(environments)]
    learner = WorkersInTurn(server, made)
    return Loop([each.actor for each in made], learner, [each.replay for each in made])
