"""How a learner's state is updated: in this process, or elsewhere (see `workers`)."""

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import numpy as np

from ..agents.base import Agent, LearnerState, Update
from ..datatypes import Sample
from .devices import Devices


class Updates(Protocol):
    """What a learner asks of its updates. `count` of them are made in one call."""

    def __call__(
        self, state: LearnerState, sample: Sample, count: int
    ) -> tuple[LearnerState, Update]:
        """One call of updates, as `updates_in_one_call` defines it; may donate the state."""

    def metric_names(self, state: LearnerState, sample: Sample, count: int) -> list[str]:
        """Names of their metrics; the sample's arrays may be `jax.ShapeDtypeStruct`s."""

    def compile(self, state: LearnerState, shapes: Sequence[Sample], count: int) -> None:
        """Compiles what is needed for `Replay.shapes`; changes nothing."""

    def newest(self, state: LearnerState) -> LearnerState:
        """The newest state: the given one, unless there is a newer one elsewhere."""

    def published(self, state: LearnerState) -> Any:
        """What `restore_published` needs, in plain data; None if the newest state is here."""

    def restore_published(self, state: LearnerState, saved: Any) -> LearnerState:
        """The state of the moment of `published`, made from another one."""


class LocalUpdates:
    """The agent's own updates on the devices of this process."""

    def __init__(self, agent: Agent, devices: Devices):
        """Takes the agent, and the devices on which the state is."""
        self._jitted = devices.jit(agent)

    def __call__(
        self, state: LearnerState, sample: Sample, count: int
    ) -> tuple[LearnerState, Update]:
        """One call of updates; donates the state."""
        return self._jitted(state, sample, count)

    def metric_names(self, state: LearnerState, sample: Sample, count: int) -> list[str]:
        """Sorted; `compile` uses the same trace."""
        _, update = jax.eval_shape(lambda x, y: self._jitted(x, y, count), state, sample)
        return sorted(update.metrics)

    def compile(self, state: LearnerState, shapes: Sequence[Sample], count: int) -> None:
        """Compiles calls of `count` updates, and of one on-policy update where there are any."""
        state = jax.tree.map(lambda x: x.copy(), state)
        for shape, updates in zip(shapes, [count, 1], strict=False):
            sample = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shape)
            for _ in range(2):  # a computed state may have another weak type than the first
                state, _ = self._jitted(state, sample, updates)
        jax.block_until_ready(state)

    def newest(self, state: LearnerState) -> LearnerState:
        """The given one."""
        return state

    def published(self, state: LearnerState) -> None:
        """None."""

    def restore_published(self, state: LearnerState, saved: Any) -> LearnerState:
        """The given one."""
        return state
