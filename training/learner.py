"""A learner: an agent's updates on batches of a replay, its metrics, and the parameters it gives.

A version of parameters is the number of the learner's updates, -1 before the first. The first
version is published when the learner has compiled: an actor that waits for it waits for that too.
"""

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..agents.base import Agent, LearnerState, Params, Update, updates_in_one_call
from ..datatypes import Sample
from ..replay.interface import REAL, Clock, Draw, Replay, Stopped, WaitTimeout, never
from ..replay.packing import TreePacking
from .run_config import RunConfig

_AXIS = "batch"
_RATE_SECONDS = 5.0  # rates are means over this long
_KEPT = ("version", "staleness", "_steps", "_known", "blob")  # of a client's state


@dataclasses.dataclass(kw_only=True)
class Counters:
    """How far a run has come."""

    steps: int = 0  # transitions taken in all environments
    episodes: int = 0  # that have ended
    updates: int = 0  # of the learner
    learning_since: int = -1  # steps at which learning began, -1 before


class MetricsAccumulator:
    """Means of what was added since the last `flush`: `open`, plain data that may be set."""

    def __init__(self) -> None:
        self.open: Sequence[dict[str, Any]] = {}, {}, {}  # values of episodes, totals, counts

    def add_episodes(self, episodes: Mapping[str, Sequence[float]], prefix: str = "") -> None:
        """Adds values of episodes that ended by name, logged as `{prefix}episode_{name}`."""
        for name, values in episodes.items():
            self.open[0].setdefault(f"{prefix}episode_{name}", []).extend(values)

    def add(self, metrics: Mapping[str, Any], count: int = 1) -> None:
        """Adds means over `count` updates, or single values."""
        _, totals, counts = self.open
        for name, value in metrics.items():
            totals[name] = totals.get(name, 0.0) + count * float(value)
            counts[name] = counts.get(name, 0) + count

    @property
    def returns(self) -> Sequence[float]:
        """Returns of the episodes that were added since the last `flush`."""
        return self.open[0].get("episode_return", [])

    @property
    def weight(self) -> int:
        """Updates whose means were added since the last `flush`; `add` of the means takes it."""
        return max(self.open[2].values(), default=0)

    def take_episodes(self) -> dict[str, list[float]]:
        """The values of episodes that were added without a prefix, which are then forgotten."""
        episodes, *others = self.open
        self.open = {}, *others
        return {name.removeprefix("episode_"): values for name, values in episodes.items()}

    def flush(self) -> dict[str, float]:
        """Means of everything that was added, which is then forgotten."""
        (episodes, totals, counts), self.open = self.open, ({}, {}, {})
        means = {name: float(np.mean(values)) for name, values in episodes.items() if values}
        return means | {name: total / counts[name] for name, total in totals.items()}


def packing_of(agent: Agent) -> TreePacking:
    """The packing of an agent's acting parameters, and of the priority of new sequences."""
    shapes = jax.eval_shape(lambda key: agent.acting_params(agent.init(key)), jax.random.key(0))
    tree = {"new_priority": np.float64(1.0), "params": shapes}
    return TreePacking("The learner's parameters", tree)


class Rate:
    """The growth of a count per second, over the last few seconds."""

    def __init__(self) -> None:
        self._points = deque[tuple[float, int]]()

    def add(self, now: float, count: int) -> None:
        """Adds a count at a time, in seconds; to be called at least once a second."""
        if self._points and count < self._points[-1][1]:  # what counts was restarted
            self._points.clear()
        self._points.append((now, count))
        while now - self._points[0][0] > _RATE_SECONDS:
            self._points.popleft()

    def per_second(self) -> float:
        """0 before the second count."""
        if len(self._points) < 2:
            return 0.0
        (first, low), (last, high) = self._points[0], self._points[-1]
        return (high - low) / (last - first) if last > first else 0.0


class ParameterServer:
    """The learner's side. `get` may be called by any thread, and by other processes.

    `wanted` says whether it was called since the last `publish`; if not, packing is not needed.
    """

    def __init__(self, packing: TreePacking, *, max_wait: float = 0.2, clock: Clock = REAL):
        """Nothing is published yet; `get` waits for `max_wait` seconds, 0 in one thread."""
        self.packing, self._max_wait = packing, max_wait
        self._changed = clock.condition()
        self.version, self.wanted, self._published = -1, True, 0
        self._blob: bytes | None = None

    def state(self) -> dict[str, Any]:
        """What `restore` needs, in plain data."""
        return {"version": self.version, "wanted": self.wanted, "blob": self._blob}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Publishes again what was published."""
        self.version, self.wanted, self._blob = state["version"], state["wanted"], state["blob"]

    def publish(self, version: int, params: Params, new_priority: float = 1.0) -> None:
        """Makes a version available; called by the learner's thread between updates."""
        blob = self.packing.pack({"new_priority": np.float64(new_priority), "params": params})
        with self._changed:
            self.version, self._blob, self.wanted = version, blob, False
            self._published += 1
            self._changed.notify_all()

    def get(self, known_version: int) -> tuple[int, bytes | None]:
        """`newest`, after a moment for the learner: what is there was published for other calls."""
        with self._changed:
            self.wanted, before = True, self._published
            self._changed.wait_for(lambda: self._published > before, self._max_wait)
            return self.newest(known_version)

    def newest(self, known_version: int) -> tuple[int, bytes | None]:
        """The published version, and its bytes if the caller lacks it."""
        return self.version, None if self.version == known_version else self._blob


class ParameterClient:
    """An actor's side, which fetches asynchronously, and continues with old parameters meanwhile.

    `params` are the newest that have arrived, None before the first; `staleness` is the number of
    versions by which they were old when they were last replaced.
    """

    def __init__(
        self,
        get: Callable[[int], tuple[int, bytes | None]],
        packing: TreePacking,
        *,
        update_period: int,
        stop: Callable[[], bool] = never,
        threaded: bool = True,
        clock: Clock = REAL,
    ):
        """Fetches by `ParameterServer.get`, which may take long and raise, at each period of steps.

        Without a thread it does so within `step`. `stop` says whether the program must end.
        """
        self.params: Params = None
        self.version, self.new_priority = -1, 1.0
        self.staleness = self.failures = 0
        self._get, self._packing = get, packing
        self._period, self._stop, self._clock = update_period, stop, clock
        self._steps, self._reason = 0, "no call has been made"
        self._arrived = deque[tuple[int, bytes]](maxlen=1)  # a thread appends, another one pops
        self.blob: bytes | None = None  # of `params`
        self._known = -1  # the newest version that has arrived
        self._wake, self._closed, self._thread = clock.event(), clock.event(), None
        if threaded:
            self._thread = clock.thread(target=self._run, name="parameters", daemon=True)
            self._thread.start()

    def wait(self, max_wait: float = 600.0) -> None:
        """Waits for the first parameters, for `max_wait` seconds, or until the program ends."""
        started = self._clock.monotonic()
        while self.params is None:
            self._ask()
            self._replace()
            if self.params is not None:
                return
            if self._stop():
                raise Stopped("Stopped while waiting for the first parameters.")
            waited = self._clock.monotonic() - started
            if waited > max_wait:
                raise WaitTimeout(
                    f"Waited {waited:.0f} s for the learner's first parameters: {self.failures} "
                    f"calls failed, the last one with: {self._reason}."
                )
            self._clock.sleep(0.05)

    def step(self) -> None:
        """Counts one time step of the actor; replaces the parameters if newer ones arrived."""
        self._steps += 1
        if self._steps % self._period == 0:
            self._ask()
        self._replace()

    def state(self) -> dict[str, Any]:
        """What `restore` needs, in plain data, of a client without a thread between two steps."""
        return {name: getattr(self, name) for name in _KEPT}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores parameters and counts."""
        for name in _KEPT:
            setattr(self, name, state[name])
        if self.blob is not None:
            self._unpack(self.blob)

    def close(self) -> None:
        """Ends the thread, or abandons it if a call takes long."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(0.5)

    def _ask(self) -> None:
        if self._thread is None:
            self._fetch()
        else:
            self._wake.set()

    def _replace(self) -> None:
        if not self._arrived:
            return
        version, blob = self._arrived.pop()
        self.staleness = max(0, version - self.version) if self.params is not None else 0
        self._unpack(blob)
        self.version = version

    def _unpack(self, blob: bytes) -> None:
        self.blob, values = blob, self._packing.unpack(blob)
        self.params = jax.device_put(values["params"])
        self.new_priority = float(values["new_priority"])

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            if not self._closed.is_set():
                self._fetch()

    def _fetch(self) -> None:
        try:
            version, blob = self._get(self._known)
        except Exception as error:  # of many types; the learner may come back
            self.failures += 1
            self._reason = str(error) or type(error).__name__
            return
        self.failures, self._reason = 0, "the learner has not compiled yet"
        if blob is not None:
            self._known = version
            self._arrived.append((version, blob))


class Snapshot(NamedTuple):
    """One moment of a run; `running` is packed data of episodes, and of metrics without a row."""

    learner: LearnerState
    replay: Any  # `Replay.state`
    counters: dict[str, Any]  # plain data: steps, episodes, updates, learning_since, seconds
    actors: Any = None  # their states; None, as `running`, in programs
    running: bytes | None = None


class _Call(NamedTuple):
    """A call of updates whose outputs have not been read yet."""

    before: int  # updates before the call
    keys: Any
    update: Update
    updates: int  # in the call


class Updates:
    """The agent's own updates, each on a batch that the devices share.

    The learner state is on every device. XLA splits the program of one device, so an update is the
    same as there up to rounding, whatever its loss averages over.
    """

    def __init__(self, agent: Agent, num_devices: int = 1):
        """Uses the first local devices of this process; ValueError if there are not so many."""
        devices = jax.local_devices()[:num_devices]
        if len(devices) < num_devices:
            raise ValueError(too_few(num_devices, [str(device) for device in devices]))
        mesh = Mesh(np.array(devices), (_AXIS,))
        self._is_one = num_devices == 1
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._split = NamedSharding(mesh, PartitionSpec(_AXIS))

        def gradients(state: LearnerState, sample: Sample) -> tuple[Any, Update]:
            split = jax.lax.with_sharding_constraint(sample, self._split)
            return agent.gradients(state, split)

        shared, shardings = agent, dict[str, Any]()
        if not self._is_one:
            shared = agent._replace(gradients=gradients)
            shardings["in_shardings"] = self._replicated, self._split
            shardings["out_shardings"] = self._replicated
        several = updates_in_one_call(shared)
        self._jitted = jax.jit(several, static_argnums=2, donate_argnums=0, **shardings)

    def __call__(
        self, state: LearnerState, sample: Sample, count: int
    ) -> tuple[LearnerState, Update]:
        """One call of `count` updates, as `updates_in_one_call` defines it; donates the state."""
        return self._jitted(state, sample, count)

    def metric_names(self, state: LearnerState, sample: Sample, count: int) -> list[str]:
        """Names of the metrics, sorted; the sample's arrays may be `jax.ShapeDtypeStruct`s."""
        # `compile` uses the same trace.
        _, update = jax.eval_shape(lambda x, y: self._jitted(x, y, count), state, sample)
        return sorted(update.metrics)

    def compile(self, state: LearnerState, shapes: Sequence[Sample], count: int) -> None:
        """Compiles calls for `Replay.shapes`: of `count` updates, then of one; changes nothing."""
        state = copied(state)
        for shape, updates in zip(shapes, [count, 1], strict=False):
            sample = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shape)
            for _ in range(2):  # a computed state may have another weak type than the first
                state, _ = self._jitted(state, sample, updates)
        jax.block_until_ready(state)

    def newest(self, state: LearnerState) -> LearnerState:
        """The newest state: the given one, unless there is a newer one elsewhere."""
        return state

    def replicate(self, state: LearnerState) -> LearnerState:
        """Arrays on every device."""
        return state if self._is_one else jax.device_put(state, self._replicated)

    def first(self, state: LearnerState) -> LearnerState:
        """The first device's copy of replicated arrays; shares their buffers."""
        if self._is_one:
            return state
        return jax.tree.map(lambda x: x.addressable_data(0), state)


class Learner:
    """Draws batches, updates, sets priorities and publishes parameters.

    While call k of updates runs, a host thread applies the priorities of call k-1 and draws batch
    k+1, so priorities lag by one draw. Without the thread, JAX 0.6 would overlap nothing on a CPU:
    it waits for the update where the old state, whose buffers were donated, is released.

    Attributes:
      state: the agent's learner state. Its buffers are donated to the next update: copy it.
      updates: updates made, those before a resumed snapshot included.
      metrics: of the updates, since the last `flush`; several learners may share it.
      idle_seconds: time spent waiting for an update to be due.
    """

    def __init__(
        self,
        agent: Agent,
        replay: Replay,
        *,
        key: jax.Array,
        updates_per_call: int = 1,
        parameters: ParameterServer | None = None,
        updates: Updates | None = None,
        clock: Clock = REAL,
    ):
        """Begins with `agent.init(key)`; publishes to `parameters`, unless actors read `params`."""
        self._agent, self._replay, self._parameters = agent, replay, parameters
        self._per_call, self._clock = updates_per_call, clock
        self._updates = updates or Updates(agent)
        self._host = clock.executor(max_workers=1, thread_name_prefix="learner host")
        self.state = self._updates.replicate(jax.jit(agent.init)(key))
        self.updates = 0
        self.metrics = MetricsAccumulator()
        self.idle_seconds = 0.0
        self._next: Draw | None = None
        self._unread: _Call | None = None

    @classmethod
    def of_run(cls, config: RunConfig, agent: Agent, replay: Replay, **options: Any) -> "Learner":
        """The learner of a resolved run; options as above."""
        options = {"updates": Updates(agent, config.learner_devices), **options}
        count, key = config.replay.updates_per_call, config.prng_keys()[0]
        return cls(agent, replay, key=key, updates_per_call=count, **options)

    @property
    def params(self) -> Params:
        """The newest acting parameters."""
        return self._agent.acting_params(self._updates.first(self.state))

    @property
    def learning_since(self) -> int:
        """Steps at which the replay began to serve sequences; -1 before, or if it is unknown."""
        since = self._replay.status().learning_since
        return -1 if since is None else since

    @property
    def metric_names(self) -> list[str]:
        """Names of the updates' metrics and of the replay's."""
        names = self._updates.metric_names(self.state, self._replay.shapes[0], self._per_call)
        return [*names, *self._replay.metric_names]

    def compile(self) -> None:
        """Compiles the updates for everything that the replay may serve; changes nothing."""
        self._updates.compile(self.state, self._replay.shapes, self._per_call)

    def step(self, timeout: float = 0.0) -> bool:
        """One call of updates, if one is due within `timeout` seconds; whether it was."""
        draw, self._next = self._next or self._wait(timeout), None
        if draw is None:
            self.finish()
            self._publish_if_wanted()
            return False
        unread, self._unread = self._unread, None
        ahead = self._host.submit(self._beside, unread)
        try:
            self.state, update = self._updates(self.state, draw.sample, draw.updates)
            self._unread = _Call(self.updates, draw.keys, update, draw.updates)
            self.updates += draw.updates
        finally:  # a remote update may be stopped: nothing may change beside a snapshot
            self._next = ahead.result()
        if self._next is None:
            self.finish()
        self._publish_if_wanted()
        return True

    def finish(self) -> None:
        """Waits for the last call of updates and reads its outputs."""
        unread, self._unread = self._unread, None
        if unread is not None:
            self._read(unread)

    def publish(self) -> None:
        """Makes the newest parameters available to actors."""
        self.state = self._updates.newest(self.state)
        if self._parameters is not None:
            priority = self._replay.status().new_priority
            self._parameters.publish(self.updates, self.params, priority)

    def fetch(self, known_version: int) -> tuple[int, bytes | None]:
        """As `ParameterServer.get`, for actors in the learner's thread: it publishes meanwhile."""
        assert self._parameters is not None
        if self._parameters.version < self.updates:
            self.publish()
        return self._parameters.newest(known_version)

    def snapshot(self) -> Snapshot:
        """Learner, replay and `updates`; the caller adds the other counters."""
        self.finish()
        state = copied(self._updates.first(self.state))
        return Snapshot(state, self._replay.state(), {"updates": self.updates})

    def restore(self, snapshot: Snapshot) -> None:
        """Restores a snapshot; its counters are `steps`, `updates` and `learning_since`."""
        self._replay.restore(snapshot.replay, snapshot.counters)
        self.state = self._updates.replicate(jax.device_put(copied(snapshot.learner)))
        self.updates = snapshot.counters["updates"]
        self._next = self._unread = None

    def running(self) -> Any:
        """The parameters that actors fetch, in plain data; None if they read the newest."""
        return None if self._parameters is None else self._parameters.state()

    def restore_running(self, state: Any) -> None:
        """Gives actors the parameters that they had when `running` was called."""
        if self._parameters is not None:
            self._parameters.restore(state)

    def close(self) -> None:
        """Ends the host thread and closes the replay."""
        self._host.shutdown()
        self._replay.close()

    def _publish_if_wanted(self) -> None:
        parameters = self._parameters
        if parameters is not None and parameters.wanted and parameters.version < self.updates:
            self.publish()

    def _wait(self, timeout: float) -> Draw | None:
        started = self._clock.monotonic()
        draw = self._replay.sample(timeout)
        if timeout:
            self.idle_seconds += self._clock.monotonic() - started
        return draw

    def _beside(self, unread: _Call | None) -> Draw | None:
        """Runs in the host thread: reads the call before, then draws the next batch."""
        if unread is not None:
            self._read(unread)
        return self._replay.sample()

    def _read(self, call: _Call) -> None:
        update = jax.device_get(call.update)
        check_finite(update, call.before, call.updates)
        self._replay.set_priorities(call.keys, np.asarray(update.priorities))
        self.metrics.add({**update.metrics, **self._replay.metrics(call.keys)}, call.updates)


def diverged(update: int) -> FloatingPointError:
    """The error to be raised after the first update whose priorities are not finite."""
    return FloatingPointError(
        f"Update {update} gave priorities that are not finite: the learner diverged. Try a smaller "
        "learning rate."
    )


def check_finite(update: Update, before: int, count: int) -> None:
    """Refuses priorities, on the host, of `count` updates after `before` others: see `diverged`."""
    wrong = ~np.isfinite(update.priorities.reshape(count, -1)).all(axis=1)
    if wrong.any():
        raise diverged(before + 1 + int(np.argmax(wrong)))


def update_shapes(shapes: Sequence[Sample], updates_per_call: int) -> list[Sample]:
    """Shapes of the samples of single updates, from `Replay.shapes`, which are of calls."""

    def of_one(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((x.shape[0] // updates_per_call, *x.shape[1:]), x.dtype)

    replayed, *newest = shapes
    return [jax.tree.map(of_one, replayed), *newest]


def copied(state: Any) -> Any:
    """A copy of arrays, whose originals the next update donates."""
    return jax.tree.map(lambda x: x.copy(), state)


def too_few(count: int, devices: list[str]) -> str:
    """One sentence for `learner_devices` beyond the devices that JAX has."""
    return f"learner_devices is {count}, but JAX has {len(devices)} here: {', '.join(devices)}."
