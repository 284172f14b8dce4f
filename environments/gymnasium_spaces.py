"""Gymnasium's spaces in the forms of our specs.

| observation space | observation |
|---|---|
| Box of floats | float32, the same shape |
| Box of uint8 or bool, `[H, W, C]` or `[H, W]` | image: uint8 `[H, W, C]` or `[H, W, 1]` |
| Discrete of n values | float32 `[n]`, one-hot |
| MultiDiscrete, MultiBinary, other Boxes | float32 `[size]`: one-hot, 0 and 1, scaled to [0, 1] |
| Dict or Tuple of all these | float32 `[sum of sizes]`: flattened, in the order of the space |

True is 255 in an image. Where a Box of integers is flattened, its values are scaled from their
bounds to [0, 1]; so are the pixels of an image in a Dict or a Tuple, which has no convolutions
then.

| action space | action |
|---|---|
| Discrete of n values | int32, 0 to n - 1 (the space's `start` is added here) |
| MultiDiscrete, MultiBinary | int32, a number for each combination, the last entry fastest |
| Box of floats, bounded | float32, the same shape; clipped to the bounds here and only here |
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from dm_env import specs
from gymnasium import spaces

from .._imports import reason
from ..datatypes import ActionSpec
from .sequential import Convert, bounded_actions, fits, float_array, image_observations, is_image

MAX_COMBINATIONS = 4096  # of actions: the policy has an output for each
MAX_FLATTENED = 4096  # numbers in a flattened observation


def convert_observations(space: spaces.Space) -> tuple[specs.Array, Convert]:
    """The spec of one observation, and the function that converts one to it.

    Raises:
      ValueError: the space has no such form, or too many numbers in it.
    """
    if _is_float_box(space):
        return float_array(space.shape), lambda value: np.asarray(value, np.float32)
    if isinstance(space, spaces.Box) and is_image(space):
        return image_observations(space)
    leaves = list(_leaves(space))
    if not all(map(_can_be_flattened, leaves)):
        raise ValueError(
            f"the observation space {space} is not supported: it must be a Box (of integers only "
            "with bounds), Discrete, MultiDiscrete, MultiBinary, or a Dict or a Tuple of these."
        )
    return _flattened(space, leaves)


def convert_actions(space: spaces.Space) -> tuple[ActionSpec, Convert]:
    """The spec of one action, and the function that converts actions `[E, ...]` to the space.

    Raises:
      ValueError: the space has no such form, or too many combinations.
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        spec = specs.DiscreteArray(int(space.n), np.int32, "action")
        return spec, lambda actions: actions.astype(np.int64) + start
    if isinstance(space, spaces.MultiDiscrete):
        return _combinations(space, space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return _combinations(space, np.full(space.shape, 2), np.zeros(space.shape, np.int64))
    if _is_float_box(space) and fits([space.low, space.high]):
        return bounded_actions(space.low, space.high, space.dtype)
    raise ValueError(
        f"the action space {space} is not supported: it must be Discrete, MultiDiscrete, "
        "MultiBinary, or a Box of floats with finite bounds."
    )


def _flattened(space: spaces.Space, leaves: list[spaces.Space]) -> tuple[specs.Array, Convert]:
    low, span = (np.concatenate(x) for x in zip(*map(_scale, leaves), strict=True))
    if low.size > MAX_FLATTENED:
        raise ValueError(
            f"the observation space {space} has {low.size} numbers, at most {MAX_FLATTENED} can be "
            "flattened: a large image must be the whole observation."
        )

    def flatten(value: Any) -> np.ndarray:
        try:
            flat = spaces.flatten(space, value).astype(np.float32)
        except Exception as error:  # Gymnasium checks nothing, so that many types are raised
            raise ValueError(
                f"the observation does not fit its space {space}: {reason(error)}"
            ) from error
        return (flat - low) / span

    return float_array(low.shape), flatten


def _leaves(space: spaces.Space) -> Iterator[spaces.Space]:
    """The spaces inside of Dicts and Tuples, in the order in which they are flattened."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        for part in parts:
            yield from _leaves(part)
    else:
        yield space


def _can_be_flattened(leaf: spaces.Space) -> bool:
    if not isinstance(leaf, spaces.Box):
        return isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
    if leaf.dtype.kind not in "iu" or leaf.dtype == np.uint8:
        return True
    limits = np.iinfo(leaf.dtype)  # Gymnasium's bounds of a Box of integers without bounds
    return bool(((leaf.low > limits.min) & (leaf.high < limits.max)).all())


def _scale(leaf: spaces.Space) -> tuple[np.ndarray, np.ndarray]:
    """What is subtracted from a flattened leaf, and what it is divided by."""
    size = spaces.flatdim(leaf)
    low, span = np.zeros(size, np.float32), np.ones(size, np.float32)
    if isinstance(leaf, spaces.Box) and leaf.dtype.kind in "iu":
        low = leaf.low.ravel().astype(np.float32)
        span = np.maximum(leaf.high.ravel().astype(np.float32) - low, 1)
    return low, span


def _combinations(
    space: spaces.Space, sizes: np.ndarray, start: np.ndarray
) -> tuple[ActionSpec, Convert]:
    """A number for each combination of entries that have `sizes` values from `start` on."""
    count = int(np.prod(sizes.astype(np.float64)))
    if count > MAX_COMBINATIONS:
        raise ValueError(
            f"the action space {space} has {count} combinations; at most {MAX_COMBINATIONS} are "
            "supported."
        )

    def split(actions: np.ndarray) -> np.ndarray:
        entries = np.stack(np.unravel_index(actions, sizes.ravel()), axis=-1)
        each = entries.reshape(len(actions), *sizes.shape) + start
        return each.astype(space.dtype)

    return specs.DiscreteArray(count, np.int32, "action"), split


def _is_float_box(space: spaces.Space) -> bool:
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
