"""Spaces of Gymnasium and specs of dm_env in the forms of our specs.

docs/how_to/environment.md has the tables. An image is scaled from the bounds of its space to 0 to
255 (a depth of 16 bits keeps 256 levels); channels that come first are turned where height and
width are at least 16 and at least 4 times their number; a `note` says what was done. Where integers
are flattened, pixels in a dictionary too, they are scaled from their bounds to [0, 1], in float64.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from dm_env import specs
from gymnasium import spaces

from ..datatypes import ActionSpec, EnvironmentSpec
from .arrival import MASK, Convert, fits
from .observations import Group, Limits, Part, floats, image, one_hot, scaled

MAX_COMBINATIONS = 4096  # of actions: the policy has an output for each
MAX_FLATTENED = 4096  # numbers in a flattened observation
_SMALL = 2  # bytes of integers whose own range is a scale
_DISCRETE = "it must be Discrete, MultiDiscrete, MultiBinary, a DiscreteArray, or"
_SEEN = (
    "an array (of integers of more than 16 bits only with bounds), or a Dict or a Tuple of these"
)
_TAKEN = "a Box or an array of floats with finite bounds"


def convert(
    seen: Any, taken: Any, limit: int | None, note: str = ""
) -> tuple[EnvironmentSpec, Part | Group, Convert]:
    """The spec of one environment, what reads its observations, and what converts its actions.

    A ValueError says that a space is of another kind, or has too many numbers.
    """
    actions, act = _actions(taken)
    mask = seen.get(MASK) if isinstance(seen, Mapping) else None
    if mask is not None:
        shape = (getattr(actions, "num_values", 0),)
        if mask.shape != shape or np.dtype(mask.dtype).kind not in "biu":
            raise ValueError(
                f"{MASK} must be [A] bools, or integers 0 and 1, for A discrete actions, got "
                f"{mask} with the action space {taken}."
            )
    observations, see, found = _observations(seen)
    note = " ".join(filter(None, (found, note)))
    spec = EnvironmentSpec(observations, actions, max_episode_steps=limit, note=note)
    return spec._replace(masks_actions=mask is not None), see, act


def _observations(space: Any) -> tuple[specs.Array, Part | Group, str]:
    """The spec of one observation, what reads it, and `EnvironmentSpec.note`."""
    tree = _tree(space)
    kind, axes = (space.dtype.kind, len(space.shape)) if _is_array(space) else ("", 0)
    if kind in tuple("ub") and axes in (2, 3) and (limits := _limits(space)) is not None:
        return image(space, limits)
    shape = (space.shape if kind == "f" else (tree.size,)) or (1,)
    if kind != "f" and tree.size > MAX_FLATTENED:
        raise ValueError(
            f"the observation space {space} has {tree.size} numbers, but at most {MAX_FLATTENED} "
            "can be flattened: a large image must be the whole observation, in unsigned integers."
        )
    return specs.Array(shape, np.float32, "observation"), tree, ""


def _actions(space: Any) -> tuple[ActionSpec, Convert]:
    """The spec of one action, and the function that converts actions `[E, ...]` to the space."""
    if isinstance(space, spaces.Discrete | specs.DiscreteArray):
        is_spec = isinstance(space, specs.DiscreteArray)
        count, start = (space.num_values, 0) if is_spec else (int(space.n), space.start)
        spec = specs.DiscreteArray(count, np.int32, "action")
        return spec, lambda actions: actions.astype(space.dtype) + start
    if isinstance(space, spaces.MultiDiscrete):
        return _combinations(space, space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return _combinations(space, np.full(space.shape, 2), np.zeros(space.shape, np.int64))
    if _is_array(space) and space.dtype.kind == "f" and (limits := _limits(space)) is not None:
        low, high = (np.broadcast_to(bound, space.shape) for bound in limits)
        if fits([low, high]):
            bounds = (bound.astype(np.float32).ravel() for bound in (low, high))
            spec = specs.BoundedArray((low.size,), np.float32, *bounds, "action")
            # Clipped in the space's dtype: a bound that is rounded to float32 can lie beyond it.
            return spec, lambda actions: np.clip(
                actions.reshape(-1, *low.shape).astype(space.dtype), low, high
            )
    raise ValueError(f"the action space {space} is not supported: {_DISCRETE} {_TAKEN}.")


def _tree(space: Any) -> Part | Group:
    if isinstance(space, Mapping):
        items = sorted(space.items(), key=lambda item: item[0] == MASK)  # which comes last
        return Group(space, {k: scaled(x, (0, 1)) if k == MASK else _tree(x) for k, x in items})
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
    raise ValueError(f"the observation space {space} is not supported: {_DISCRETE} {_SEEN}.")


def _is_array(space: Any) -> bool:
    is_array = isinstance(space, spaces.Box | specs.Array)
    return is_array and not isinstance(space, specs.DiscreteArray) and space.dtype.kind in "fiub"


def _limits(space: Any) -> Limits | None:
    """The least and the largest values of an array; None if it has none.

    Gymnasium writes a type's limits for no bounds; limits of small integers are a scale.
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
        return (entries.reshape(len(actions), *sizes.shape) + start).astype(space.dtype)

    return specs.DiscreteArray(count, np.int32, "action"), split
