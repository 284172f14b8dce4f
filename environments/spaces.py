"""Spaces of Gymnasium and specs of dm_env in the forms of our specs.

| observation space, or spec | observation |
|---|---|
| Box or array of floats | float32, the same shape; a scalar is a vector of one number |
| those of unsigned integers or bool, `[H, W, C]`, `[H, W]` | image: uint8 `[H, W, C or 1]` |
| Discrete of n values | float32 `[n]`, one-hot |
| MultiDiscrete, MultiBinary, other Boxes | float32 `[size]`: one-hot, 0 and 1, scaled to [0, 1] |
| Dict, Tuple or dictionary of all these | float32 `[sum of sizes]`: flattened, in their order |

The values of an image are scaled from the bounds of their space to 0 to 255, its lower to its upper
one; networks divide by 255. So the upper one must be the largest value that occurs: a board of 0
and 1 with a `high` of 255 is almost black. A depth image of 16 bits keeps 256 levels. Codes (of
objects, colours) are scaled as if they were brightness, since a space cannot say that they are
codes: show a channel of bits for each code. An image with its channels first, `[C, H, W]`, is
turned: where H and W are at least 16 and at least 4 C. The log of a run says what was done.

Where integers are flattened, they are scaled from their bounds to [0, 1], in float64; so are the
pixels of an image in a dictionary or a tuple, which has no convolutions then. Every observation is
compared with its space before: see `observations`.

| action space, or spec | action |
|---|---|
| Discrete of n values | int32, 0 to n - 1 (the space's `start` is added here) |
| MultiDiscrete, MultiBinary | int32, a number for each combination, the last entry fastest |
| Box or array of floats, bounded | float32 `[size]`: flattened; clipped to the bounds only here |
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from dm_env import specs
from gymnasium import spaces

from ..datatypes import ActionSpec, EnvironmentSpec
from .arrival import Convert, fits
from .observations import Group, Limits, Part, floats, image, one_hot, scaled

MAX_COMBINATIONS = 4096  # of actions: the policy has an output for each
MAX_FLATTENED = 4096  # numbers in a flattened observation
_SMALL = 2  # bytes of integers whose own range is a scale
_SEEN = (
    "it must be a Box (of integers only with bounds), Discrete, MultiDiscrete, MultiBinary, or a "
    "Dict or a Tuple of these",
    "it must be floats, bool, integers (of more than 16 bits only with bounds), a DiscreteArray or "
    "a dictionary of these",
)
_TAKEN = (
    "it must be Discrete, MultiDiscrete, MultiBinary, or a Box of floats with finite bounds",
    "it must be a DiscreteArray, or a BoundedArray of floats with finite bounds",
)


def convert(
    seen: Any, taken: Any, limit: int | None, note: str = ""
) -> tuple[EnvironmentSpec, Part | Group, Convert]:
    """The spec of one environment, what reads its observations, and what converts its actions.

    Raises:
      ValueError: a space has none of the forms above, or too many numbers.
    """
    observations, see, found = _observations(seen)
    actions, act = _actions(taken)
    note = " ".join(filter(None, (found, note)))
    return EnvironmentSpec(observations, actions, max_episode_steps=limit, note=note), see, act


def _observations(space: Any) -> tuple[specs.Array, Part | Group, str]:
    """The spec of one observation, what reads it, and `EnvironmentSpec.note`."""
    tree = _tree(space)
    kind, axes = (space.dtype.kind, len(space.shape)) if _is_array(space) else ("", 0)
    if kind in tuple("ub") and axes in (2, 3):
        limits = _limits(space)
        assert limits is not None
        return image(space, limits)
    shape = (space.shape if kind == "f" else (tree.size,)) or (1,)
    if kind != "f" and tree.size > MAX_FLATTENED:
        raise ValueError(
            f"the observation space {space} has {tree.size} numbers, at most {MAX_FLATTENED} can "
            "be flattened: a large image must be the whole observation, of unsigned integers."
        )
    return specs.Array(shape, np.float32, "observation"), tree, ""


def _actions(space: Any) -> tuple[ActionSpec, Convert]:
    """The spec of one action, and the function that converts actions `[E, ...]` to the space."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        spec = specs.DiscreteArray(int(space.n), np.int32, "action")
        return spec, lambda actions: actions.astype(np.int64) + start
    if isinstance(space, specs.DiscreteArray):
        spec = specs.DiscreteArray(space.num_values, np.int32, "action")
        return spec, lambda actions: actions.astype(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return _combinations(space, space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return _combinations(space, np.full(space.shape, 2), np.zeros(space.shape, np.int64))
    if _is_array(space) and space.dtype.kind == "f" and (limits := _limits(space)) is not None:
        low, high = (np.broadcast_to(bound, space.shape) for bound in limits)
        if fits([low, high]):
            return _bounded(low, high, space.dtype)
    raise _refused("action", space, _TAKEN)


def _tree(space: Any) -> Part | Group:
    """What reads a space."""
    if isinstance(space, Mapping):
        return Group(space, {key: _tree(part) for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return Group(space, [_tree(part) for part in space.spaces])
    if isinstance(space, spaces.MultiBinary):
        return scaled(space, (0, 1))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        first = np.asarray(space.start, np.int64)
        count = space.n if isinstance(space, spaces.Discrete) else space.nvec
        return one_hot(space, (first, first + np.asarray(count, np.int64) - 1))
    if isinstance(space, specs.DiscreteArray):
        return one_hot(space, (0, space.num_values - 1))
    if _is_array(space) and space.dtype.kind == "f":
        return floats(space)
    if _is_array(space) and (limits := _limits(space)) is not None:
        return scaled(space, limits)
    raise _refused("observation", space, _SEEN)


def _is_array(space: Any) -> bool:
    is_array = isinstance(space, spaces.Box | specs.Array)
    return is_array and not isinstance(space, specs.DiscreteArray) and space.dtype.kind in "fiub"


def _limits(space: Any) -> Limits | None:
    """The least and the largest values of an array; None if it has none.

    Gymnasium has the limits of a type for no bounds; those of small integers are a scale.
    """
    kind, itemsize = space.dtype.kind, space.dtype.itemsize
    whole = None if kind in "fb" else np.iinfo(space.dtype)
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, specs.BoundedArray):
        low, high = space.minimum, space.maximum
    elif kind == "f":
        return None
    else:
        low, high = (0, 1) if whole is None else (whole.min, whole.max)
    if whole is None or itemsize <= _SMALL:
        return low, high
    has_bounds = ((low > whole.min) | (kind == "u")) & (high < whole.max)
    return (low, high) if np.all(has_bounds) else None


def _bounded(
    low: np.ndarray, high: np.ndarray, dtype: np.dtype
) -> tuple[specs.BoundedArray, Convert]:
    """Continuous actions, float32 `[size]`, and the function that clips them.

    It clips in `dtype`, because a bound that is rounded to float32 can lie beyond it.
    """
    if not low.size:
        raise ValueError(
            f"actions of shape {low.shape} have no numbers: there is nothing to learn."
        )
    bounds = (bound.astype(np.float32).ravel() for bound in (low, high))
    spec = specs.BoundedArray((low.size,), np.float32, *bounds, "action")
    return spec, lambda actions: np.clip(actions.reshape(-1, *low.shape).astype(dtype), low, high)


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


def _refused(what: str, space: Any, allowed: tuple[str, str]) -> ValueError:
    is_spec = not isinstance(space, spaces.Space)
    kind = "spec" if is_spec else "space"
    return ValueError(f"the {what} {kind} {space} is not supported: {allowed[is_spec]}.")
