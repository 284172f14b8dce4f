"""Gymnasium's spaces in the forms of our specs.

| observation space | observation |
|---|---|
| Box of floats | float32, the same shape; a scalar is a vector of one number |
| Box of unsigned integers or bool, `[H, W, C]` or `[H, W]` | image: uint8 `[H, W, C or 1]` |
| Discrete of n values | float32 `[n]`, one-hot |
| MultiDiscrete, MultiBinary, other Boxes | float32 `[size]`: one-hot, 0 and 1, scaled to [0, 1] |
| Dict or Tuple of all these | float32 `[sum of sizes]`: flattened, in the order of the space |

The values of an image are scaled from the bounds of their Box to 0 to 255, its lower to its upper
one; networks divide by 255. So `high` must be the largest value that occurs: a board of 0 and 1
with a `high` of 255 is almost black. A depth image of 16 bits keeps 256 levels. Codes (of objects,
colours) are scaled as if they were brightness, since a Box cannot say that they are codes: show a
channel of bits for each code. An image with its channels first, `[C, H, W]`, is turned: where H and
W are at least 16 and at least 4 C. The log of a run says what was done.

Where a Box of integers is flattened, its values are scaled from their bounds to [0, 1], in float64;
so are the pixels of an image in a Dict or a Tuple, which has no convolutions then. Every
observation is compared with its space before: see `observations`.

| action space | action |
|---|---|
| Discrete of n values | int32, 0 to n - 1 (the space's `start` is added here) |
| MultiDiscrete, MultiBinary | int32, a number for each combination, the last entry fastest |
| Box of floats, bounded | float32 `[size]`: flattened; clipped to the bounds here and only here |
"""

from typing import Any

import numpy as np
from dm_env import specs
from gymnasium import spaces

from ..datatypes import ActionSpec
from .arrival import Convert, bounded_actions, fits
from .observations import Group, Part, float_array, floats, image, is_image, one_hot, scaled

MAX_COMBINATIONS = 4096  # of actions: the policy has an output for each
MAX_FLATTENED = 4096  # numbers in a flattened observation
_SMALL = 2  # bytes of integers whose own range is a scale


def convert_observations(space: spaces.Space) -> tuple[specs.Array, Part | Group, str]:
    """The spec of one observation, what checks and converts one to it, and `EnvironmentSpec.note`.

    Raises:
      ValueError: the space has no such form, or too many numbers in it.
    """
    tree = _tree(space)
    if isinstance(space, spaces.Box) and is_image(space):
        return image(space, (space.low, space.high))
    if _is_float_box(space):
        return float_array(space.shape), tree, ""
    if tree.size > MAX_FLATTENED:
        raise ValueError(
            f"the observation space {space} has {tree.size} numbers, at most {MAX_FLATTENED} can "
            "be flattened: a large image must be the whole observation, of unsigned integers."
        )
    return float_array((tree.size,)), tree, ""


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


def _tree(space: Any) -> Part | Group:
    """What reads a space."""
    if isinstance(space, spaces.Dict):
        return Group(space, {key: _tree(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return Group(space, [_tree(part) for part in space.spaces])
    if _is_float_box(space):
        return floats(space)
    if isinstance(space, spaces.Box) and _has_bounds(space):
        return scaled(space, (space.low, space.high))
    if isinstance(space, spaces.MultiBinary):
        return scaled(space, (0, 1))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        first = np.asarray(space.start, np.int64)
        count = space.n if isinstance(space, spaces.Discrete) else space.nvec
        return one_hot(space, (first, first + np.asarray(count, np.int64) - 1))
    raise ValueError(
        f"the observation space {space} is not supported: it must be a Box (of integers only with "
        "bounds), Discrete, MultiDiscrete, MultiBinary, or a Dict or a Tuple of these."
    )


def _has_bounds(box: spaces.Box) -> bool:
    """Whether integers have a scale: Gymnasium has the limits of their type for no bounds."""
    if box.dtype.kind not in "iu" or box.dtype.itemsize <= _SMALL:
        return True
    limits = np.iinfo(box.dtype)
    return bool(((box.low > limits.min) & (box.high < limits.max)).all())


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
