"""A learner's updates: the agent's own, on one or several devices of this process."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..agents.base import Agent, LearnerState, Update, UpdatesFunction, updates_in_one_call
from ..datatypes import Sample

_AXIS = "batch"


class Updates:
    """The agent's own updates, each on a batch that the devices share.

    The learner state is on every device. XLA splits the program of one device, so an update is the
    same as there up to rounding, whatever its loss averages over.
    """

    def __init__(self, agent: Agent, num_devices: int = 1):
        """Uses the first local devices of this process.

        Raises:
          ValueError: there are not so many.
        """
        devices = jax.local_devices()[:num_devices]
        if len(devices) < num_devices:
            raise ValueError(too_few(num_devices, [str(device) for device in devices]))
        mesh = Mesh(np.array(devices), (_AXIS,))
        self._is_one = num_devices == 1
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._split = NamedSharding(mesh, PartitionSpec(_AXIS))
        self._jitted = self._jit(agent)

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

    def _jit(self, agent: Agent) -> UpdatesFunction:
        if self._is_one:
            return jax.jit(updates_in_one_call(agent), static_argnums=2, donate_argnums=0)

        def gradients(state: LearnerState, sample: Sample) -> tuple[Any, Update]:
            split = jax.lax.with_sharding_constraint(sample, self._split)
            return agent.gradients(state, split)

        return jax.jit(
            updates_in_one_call(agent._replace(gradients=gradients)),
            static_argnums=2,
            donate_argnums=0,
            in_shardings=(self._replicated, self._split),
            out_shardings=self._replicated,
        )


def copied(state: Any) -> Any:
    """A copy of arrays, whose originals the next update donates."""
    return jax.tree.map(lambda x: x.copy(), state)


def too_few(count: int, devices: list[str]) -> str:
    """One sentence for `learner_devices` beyond the devices that JAX has."""
    return f"learner_devices is {count}, but JAX has {len(devices)} here: {', '.join(devices)}."
