"""A learner: an agent's updates on batches of a replay, on one or several devices."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..agents.base import Agent, LearnerState, Params, Update, updates_in_one_call
from ..datatypes import Sample
from ..replay.interface import Draw, Replay
from .metrics import MetricsAccumulator
from .parameters import ParameterServer
from .run_config import RunConfig

_AXIS = "batch"


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
        """Replicated arrays as those of the first device; shares their buffers."""
        if self._is_one:
            return state
        return jax.tree.map(lambda x: x.addressable_data(0), state)


class Learner:
    """Draws batches, updates, sets priorities and publishes parameters.

    While call k of updates runs, a host thread applies the priorities of call k-1 and draws batch
    k+1, so priorities lag by one draw. On a CPU the call of an update returns when it is done, so
    the overlap needs the thread.

    Attributes:
      state: the agent's learner state. Its buffers are donated to the next update: copy it.
      updates: updates made, those before a resumed snapshot included.
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
        metrics: MetricsAccumulator | None = None,
    ):
        """Makes the initial state by `agent.init(key)`.

        Parameters are published to `parameters`, unless actors read `params`. `updates` are on one
        device if None.
        """
        self._agent, self._replay, self._parameters = agent, replay, parameters
        self._per_call = updates_per_call
        self._updates = updates or Updates(agent)
        self._host = ThreadPoolExecutor(max_workers=1, thread_name_prefix="learner host")
        self.state = self._updates.replicate(jax.jit(agent.init)(key))
        self.updates = 0
        self.metrics = MetricsAccumulator() if metrics is None else metrics
        self.idle_seconds = 0.0
        self._next: Draw | None = None
        self._unread: _Call | None = None

    @classmethod
    def of_run(
        cls,
        config: RunConfig,
        agent: Agent,
        replay: Replay,
        *,
        updates: Updates | None = None,
        **options: Any,
    ) -> "Learner":
        """The learner of a resolved run; options as above."""
        return cls(
            agent,
            replay,
            key=config.prng_keys()[0],
            updates_per_call=config.replay.updates_per_call,
            updates=updates or Updates(agent, config.learner_devices),
            **options,
        )

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
        started = time.monotonic()
        draw = self._replay.sample(timeout)
        if timeout:
            self.idle_seconds += time.monotonic() - started
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
    """The samples of single updates, from those of calls: `Replay.shapes`."""

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
