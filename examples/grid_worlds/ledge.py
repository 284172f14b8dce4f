"""A path along a cliff, in JAX, whose observations tell which moves are legal."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from retrax.datatypes import EnvironmentSpec
from retrax.environments.pure import Stepped, Transition

# `#` is the path; it begins in the first row and ends in the last one.
PATH = ("##...", ".#...", ".####", "....#", "..###", "..#..", "..###")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """The cell after each move, and whether the move is legal: `[cells, 4]`."""
    cells = [(r, c) for r, row in enumerate(PATH) for c, x in enumerate(row) if x == "#"]
    numbers = {cell: number for number, cell in enumerate(cells)}
    after = [[numbers.get((r + down, c + right), -1) for down, right in MOVES] for r, c in cells]
    return np.maximum(after, 0).astype(np.int32), np.array(after) >= 0


AFTER, LEGAL = _tables()
CELLS = len(AFTER)


@dataclasses.dataclass(frozen=True)
class Ledge:
    """Walk along a path of 15 cells: a move off the path is illegal, and falls.

    Actions: 0 up, 1 right, 2 down, 3 left. The last cell pays 1 and terminates; a fall pays -1 and
    terminates; after 60 actions the episode is truncated. The observation is float32
    `[cells + 4]`: the cell as a vector with one 1, then the mask of the legal moves, of which a
    `spec` with `masks_actions` tells. An agent that plays legal moves alone never falls; uniformly
    random play without the mask falls in nearly every episode.
    """

    spec = EnvironmentSpec(
        specs.BoundedArray((CELLS + 4,), np.float32, 0.0, 1.0, "observation"),
        specs.DiscreteArray(4, np.int32, "action"),
        max_episode_steps=60,
        masks_actions=True,
    )

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The first cell, and what is seen there."""
        del key
        cell = jnp.int32(0)
        return cell, self._seen(cell)

    def step(self, key: jax.Array, cell: jax.Array, action: jax.Array) -> Stepped:
        """Moves, or falls."""
        del key
        falls = ~jnp.asarray(LEGAL)[cell, action]
        cell = jnp.where(falls, cell, jnp.asarray(AFTER)[cell, action])
        arrives = cell == CELLS - 1
        reward = arrives.astype(jnp.float32) - falls
        return cell, Transition(self._seen(cell), reward, arrives | falls, np.False_)

    def _seen(self, cell: jax.Array) -> jax.Array:
        return jnp.concatenate([jax.nn.one_hot(cell, CELLS), jnp.asarray(LEGAL)[cell]])
