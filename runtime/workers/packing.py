"""What travels between workers and a parameter server: packed gradients, and parts of the state.

`P` denotes the numbers of all gradients together.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...agents.base import Agent, Gradients, LearnerState
from ...basics.prng_keys import with_keys, without_keys
from ...datatypes import Sample
from ..parameters import ParameterPacking

_MAX_BYTES = 4  # of a number that float32 represents exactly


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


class GradientPacking:
    """An agent's gradients as one vector, and the vector as bytes.

    `flatten` and `unflatten` are meant to be traced within the functions that make and apply the
    gradients. The bytes are a hash of names, dtypes and shapes, then the vector.

    Attributes:
      size: P.
      dtype: of the vector.
      num_bytes: of packed gradients.
    """

    def __init__(self, agent: Agent, sample: Sample, *, compress: bool = False):
        """Takes the agent and the shapes of one update's sample.

        Args:
          agent: whose `gradients` are packed.
          sample: as `jax.ShapeDtypeStruct`s.
          compress: bfloat16 instead of float32.

        Raises:
          ValueError: a gradient's dtype does not fit into float32.
        """
        state = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
        like, _ = jax.eval_shape(agent.gradients, state, sample)
        named = jax.tree_util.tree_leaves_with_path(like)
        for path, leaf in named:
            if not jnp.issubdtype(leaf.dtype, jnp.floating) or leaf.dtype.itemsize > _MAX_BYTES:
                raise ValueError(
                    f"A parameter server takes float gradients of at most {8 * _MAX_BYTES} bits, "
                    f"but Agent.gradients gives {jax.tree_util.keystr(path)} as {leaf.dtype}."
                )
        self._leaves, self._structure = jax.tree.flatten(like)
        self.dtype = np.dtype(jnp.bfloat16 if compress else np.float32)
        layout = str([(jax.tree_util.keystr(path), x.shape, str(x.dtype)) for path, x in named])
        self._layout = hashlib.sha256(f"{layout}{self.dtype}".encode()).digest()[:8]
        self._sizes = [int(np.prod(leaf.shape)) for leaf in self._leaves]
        self.size = sum(self._sizes)
        self.num_bytes = len(self._layout) + self.size * self.dtype.itemsize

    def flatten(self, gradients: Gradients) -> jax.Array:
        """The vector `[P]`, float32 or bfloat16."""
        parts = [jnp.ravel(leaf).astype(self.dtype) for leaf in jax.tree.leaves(gradients)]
        return jnp.concatenate(parts)

    def unflatten(self, vector: jax.Array) -> Gradients:
        """The gradients of a vector `[P]`."""
        parts = jnp.split(vector, np.cumsum(self._sizes)[:-1])
        leaves = [
            part.astype(leaf.dtype).reshape(leaf.shape)
            for part, leaf in zip(parts, self._leaves, strict=True)
        ]
        return jax.tree.unflatten(self._structure, leaves)

    def pack(self, vector: jax.Array) -> bytes:
        """Copies a vector `[P]` from its device."""
        return self._layout + np.asarray(vector).tobytes()

    def unpack(self, blob: bytes) -> np.ndarray:
        """The vector `[P]` of packed gradients; shares their memory.

        Raises:
          ValueError: the bytes are of other gradients.
        """
        layout = blob[: len(self._layout)]
        if layout != self._layout or len(blob) != self.num_bytes:
            raise ValueError(
                f"A worker's gradients are {len(blob)} bytes of the layout {layout.hex()}, but "
                f"the parameter server takes {self.num_bytes} bytes of {self._layout.hex()}: both "
                "need the same agent and config."
            )
        return np.frombuffer(blob, self.dtype, offset=len(self._layout))


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
