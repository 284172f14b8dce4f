"""A learner on several devices of its process: each computes its part of every batch.

The learner state is replicated. XLA splits the program of one device, so an update is the same as
there up to rounding, whatever its loss averages over.
"""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..agents.base import Agent, LearnerState, Update, UpdatesFunction, updates_in_one_call
from ..datatypes import Sample

_AXIS = "batch"


def shared_programs(directory: Path) -> dict[str, str]:
    """Environment variables of processes that share compiled programs.

    They are kept below a directory, or where the user keeps them already.
    """
    own = str((directory / "compilation_cache").absolute())
    return {
        "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", own),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


class Devices:
    """The first local devices of this process, and the placement of arrays on them."""

    def __init__(self, count: int = 1):
        """Takes the devices.

        Args:
          count: in 1 .. `jax.local_device_count()`.

        Raises:
          ValueError: there are not so many.
        """
        devices = jax.local_devices()[:count]
        if len(devices) < count:
            raise ValueError(too_few(count, [str(device) for device in devices]))
        mesh = Mesh(np.array(devices), (_AXIS,))
        self._is_one = count == 1
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._split = NamedSharding(mesh, PartitionSpec(_AXIS))

    def jit(self, agent: Agent) -> UpdatesFunction:
        """Jitted `updates_in_one_call`, which splits the batch of each update over the devices.

        The state is donated, and must be `replicated`.
        """
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

    def replicate(self, state: Any) -> Any:
        """Arrays on every device."""
        return state if self._is_one else jax.device_put(state, self._replicated)

    def first(self, state: Any) -> Any:
        """Replicated arrays as those of the first device; shares their buffers."""
        if self._is_one:
            return state
        return jax.tree.map(lambda x: x.addressable_data(0), state)


def too_few(count: int, devices: list[str]) -> str:
    """One sentence for `learner_devices` beyond the devices that JAX has."""
    return f"learner_devices is {count}, but JAX has {len(devices)} here: {', '.join(devices)}."
