"""What travels between workers and a parameter server: packed gradients, and parts of the state."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ...agents.base import Agent, Gradients, LearnerState
from ...basics.prng_keys import with_keys, without_keys
from ...datatypes import Sample
from ...replay.packing import TreePacking
from ..parameters import ParameterPacking


def update_shapes(shapes: Sequence[Sample], updates_per_call: int) -> list[Sample]:
    """The samples of single updates.

    Args:
      shapes: of calls: `Replay.shapes`.
      updates_per_call: as in `ReplayConfig`.
    """

    def part(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((x.shape[0] // updates_per_call, *x.shape[1:]), x.dtype)

    replayed, *newest = shapes
    return [jax.tree.map(part, replayed), *newest]


class GradientPacking(TreePacking):
    """Packs an agent's gradients.

    `compress` and `restore` are meant to be traced within the functions that make and apply them.
    """

    def __init__(self, agent: Agent, sample: Sample, *, compress: bool = False):
        """Takes the agent and the shapes of one update's sample.

        Args:
          agent: whose `gradients` are packed.
          sample: as `jax.ShapeDtypeStruct`s.
          compress: bfloat16 for all floats.
        """
        state = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
        self._gradients, _ = jax.eval_shape(agent.gradients, state, sample)

        def sent(x: Any) -> jax.ShapeDtypeStruct:
            is_float = compress and jnp.issubdtype(x.dtype, jnp.floating)
            return jax.ShapeDtypeStruct(x.shape, jnp.bfloat16 if is_float else x.dtype)

        super().__init__("A worker's gradients", jax.tree.map(sent, self._gradients))

    def compress(self, gradients: Gradients) -> Gradients:
        """What is packed of gradients."""
        return jax.tree.map(lambda x, like: x.astype(like.dtype), gradients, self.like)

    def restore(self, compressed: Gradients) -> Gradients:
        """The gradients, with the agent's dtypes."""
        return jax.tree.map(lambda x, like: x.astype(like.dtype), compressed, self._gradients)


class StatePacking:
    """The arrays of a learner state that workers need, as bytes.

    These are the arrays that `gradients` and `acting_params` read: optimiser states are none of
    them.

    Attributes:
      parameters: packs what `select` returns.
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
        self.parameters = ParameterPacking(jax.eval_shape(self.select, state))

    def select(self, state: LearnerState) -> list[Any]:
        """The arrays that workers need, PRNG keys as their data; shares them."""
        leaves = jax.tree.leaves(without_keys(state))
        return [leaf for leaf, is_read in zip(leaves, self._read, strict=True) if is_read]

    def merge(self, state: LearnerState, selected: Sequence[Any]) -> LearnerState:
        """A state with its arrays replaced by those that `select` returned."""
        leaves, structure = jax.tree.flatten(state)
        newer = iter(selected)
        merged = [
            next(newer) if is_read else leaf
            for leaf, is_read in zip(leaves, self._read, strict=True)
        ]
        return with_keys(state, jax.tree.unflatten(structure, merged))
