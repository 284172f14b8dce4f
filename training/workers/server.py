"""A parameter server: the learner state, to which the gradients of workers are applied.

A version is the number of gradients applied: of updates. The staleness of a gradient is the number
of versions between the parameters of which it was computed and those to which it is applied.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ...agents.base import Agent, LearnerState, Params
from ...basics.prng_keys import with_keys, without_keys
from ...datatypes import Sample
from ...replay.packing import TreePacking
from ..learner import Snapshot, copied
from ..metrics import MetricsAccumulator
from ..parameters import ParameterServer

Call = tuple[int, int]  # how often the worker was restarted before, and the number of the call


class Receipt(NamedTuple):
    """Whether a gradient was applied, and how stale it was.

    Attributes:
      applied: whether it was; if not, it was dropped.
      staleness: versions that were applied since its own; negative if its version is one that a
        restarted server has not reached.
    """

    applied: bool
    staleness: int


class StatePacking:
    """Packs the arrays of a learner state that `gradients` and `acting_params` read.

    Optimiser states are not among them. PRNG keys travel as their data.
    """

    def __init__(self, agent: Agent, samples: Sequence[Sample]):
        """Takes the agent, and the shapes of the samples of its updates."""

        def read(state: LearnerState, sample: Sample) -> Any:
            return agent.gradients(state, sample), agent.acting_params(state)

        state = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
        count = len(jax.tree.leaves(state))
        self._read = [False] * count
        for sample in samples:
            jaxpr = jax.make_jaxpr(read)(state, sample).jaxpr
            used = [id(v) for equation in jaxpr.eqns for v in equation.invars]
            known = {*used, *map(id, jaxpr.outvars)}
            pairs = zip(self._read, jaxpr.invars[:count], strict=True)
            self._read = [before or id(variable) in known for before, variable in pairs]
        self._packing = TreePacking("The server's arrays", jax.eval_shape(self._select, state))

    def pack(self, state: LearnerState) -> bytes:
        """Copies the arrays from the device."""
        return self._packing.pack(self._select(state))

    def unpack(self, state: LearnerState, blob: bytes) -> LearnerState:
        """A state with these arrays in place of its own, on the device.

        Raises:
          ValueError: the bytes are of another agent or config.
        """
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
    """Applies gradients in the order of arrival, each in one jitted call.

    `apply` and `get` may be called by any thread, and by other processes: a call that is repeated
    because its answer was lost changes nothing.

    Attributes:
      state: the agent's learner state. Its buffers are donated to the next `apply`: copy it.
      updates: the version: gradients applied, those before a resumed snapshot included.
      metrics: means over updates since the last flush. It adds none: the workers have them.
      restored: `updates` at the start.
      busy_seconds: time spent in `apply`.
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
    ):
        """Makes the initial state by `agent.init(key)`; workers need the same packings.

        Gradients with a staleness above `max_staleness` are dropped. Acting parameters are
        published to `parameters`, if others act.
        """
        self._agent, self._gradients, self._states = agent, gradients, states
        self._max_staleness = max_staleness
        self._packed = -1, b""  # the newest version that was fetched
        self._parameters, self.metrics = parameters, MetricsAccumulator()
        self._lock = threading.Condition()
        self._answered: dict[int, tuple[Call, Receipt]] = {}
        self._apply = jax.jit(agent.apply, donate_argnums=0)
        self.state = jax.jit(agent.init)(key)
        self.updates = self.restored = 0
        self.busy_seconds, self._seen, self._started = 0.0, -1, time.monotonic()

    @property
    def params(self) -> Params:
        """The newest acting parameters, in buffers that the next `apply` may overwrite."""
        return self._agent.acting_params(self.state)

    def apply(self, worker: int, call: Call, version: int, gradients: bytes) -> Receipt:
        """Applies a packed gradient of parameters of a version, or drops it if that is too old.

        Later calls of a worker are larger. One that was answered before is not applied again, nor
        is an earlier one.

        Raises:
          ValueError: the gradient is that of another agent or config.
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
                started = time.perf_counter()
                self.state = jax.block_until_ready(self._apply(self.state, unpacked))
                self.busy_seconds += time.perf_counter() - started
                self.updates += 1
            receipt = Receipt(applied, staleness)
            self._answered[worker] = (restarts, number), receipt
            self._lock.notify_all()
            return receipt

    @property
    def idle_seconds(self) -> float:
        """Time since it was compiled in which no gradient was applied."""
        return time.monotonic() - self._started - self.busy_seconds

    def compile(self) -> None:
        """Compiles `apply`; changes nothing."""
        state = copied(self.state)
        zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), self._gradients.like)
        for _ in range(2):  # a computed state may have another weak type than the first
            state = self._apply(state, zeros)
        jax.block_until_ready(state)
        self._started = time.monotonic()

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

    def get(self, known_version: int) -> tuple[int, bytes | None]:
        """The newest version and what workers need of it; None if the caller has it already.

        A version is packed when it is asked for, and once.
        """
        with self._lock:
            if known_version == self.updates:
                return self.updates, None
            if self._packed[0] != self.updates:
                self._packed = self.updates, self._states.pack(self.state)
            return self._packed

    def snapshot(self) -> Snapshot:
        """The state and `updates`; the caller adds what else there is."""
        with self._lock:
            # The workers have the replays.
            return Snapshot(copied(self.state), {}, {"updates": self.updates})

    def restore(self, snapshot: Snapshot) -> None:
        """Restores the learner state and the counter `updates`."""
        with self._lock:
            self.state = jax.device_put(copied(snapshot.learner))
            self.updates = self.restored = snapshot.counters["updates"]
            self._packed = -1, b""

    def close(self) -> None:
        """Does nothing: it has no threads."""
