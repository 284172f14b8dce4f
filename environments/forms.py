"""The forms of observations and actions in our specs, for adapters of other libraries."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from dm_env import specs

from .observations import Contains, Part, image

Convert: TypeAlias = Callable[[Any], np.ndarray]

_LARGEST = float(np.finfo(np.float32).max)
_SIDE = 16  # pixels of an image whose channels may come first


def bounded_actions(
    low: np.ndarray, high: np.ndarray, dtype: np.dtype
) -> tuple[specs.BoundedArray, Convert]:
    """The spec of continuous actions, and the function that clips them.

    They are clipped in the environment's own precision, because a bound that is rounded to float32
    can lie beyond it.

    Args:
      low: `[...]`, finite as float32.
      high: `[...]`, finite as float32.
      dtype: the type that the environment takes.

    Returns:
      A float32 spec `[size]`, and a function from float32 `[E, size]` to `dtype` `[E, ...]` within
      bounds.

    Raises:
      ValueError: an action has no numbers.
    """
    if not low.size:
        raise ValueError(
            f"actions of shape {low.shape} have no numbers: there is nothing to learn."
        )
    bounds = (bound.astype(np.float32).ravel() for bound in (low, high))
    spec = specs.BoundedArray((low.size,), np.float32, *bounds, "action")
    return spec, lambda actions: np.clip(actions.reshape(-1, *low.shape).astype(dtype), low, high)


def float_array(shape: tuple[int, ...]) -> specs.Array:
    """The spec of unbounded float32 observations; a scalar becomes a vector of one number."""
    return specs.Array(shape or (1,), np.float32, "observation")


def is_image(space: Any) -> bool:
    """Whether a space or a spec has unsigned integers or bools and 2 or 3 axes."""
    return np.dtype(space.dtype).kind in "ub" and len(space.shape) in (2, 3)


class Images(NamedTuple):
    """How the images of a space are seen.

    Attributes:
      spec: of one of them: `[H, W, C]`.
      see: checks and converts them.
      note: what is changed in them, for `EnvironmentSpec.note`.
    """

    spec: specs.Array
    see: Part
    note: str


def images(space: Any, contains: Contains, low: Any, high: Any) -> Images:
    """The images of a space or a spec.

    Args:
      space: `[H, W, C]`, or `[C, H, W]` where the first axis is that of the channels (at most a
        quarter of each other one, which are 16 or more), or `[H, W]`, which becomes `[H, W, 1]`.
      contains: whether the library says that a value is in the space.
      low: the value that becomes 0, for each pixel or for all.
      high: the value that becomes 255.
    """
    shape, notes = (*space.shape, 1)[:3], []
    channels_first = len(space.shape) == 3 and min(shape[1:]) >= max(_SIDE, 4 * shape[0])
    if channels_first:
        shape = (*shape[1:], shape[0])
        notes.append(f"have their channels first, {space.shape}, and are turned to {shape}")
    if space.dtype != np.bool_ and not (np.all(low == 0) and np.all(high == 255)):
        notes.append(f"have values from {np.min(low)} to {np.max(high)}, which become 0 to 255")
    spec = specs.BoundedArray(shape, np.uint8, 0, 255, "observation")
    see = image(space, contains, (low, high), channels_first=channels_first)
    return Images(spec, see, f"The environment's images {' and '.join(notes)}." if notes else "")


def fits(values: Any) -> bool:
    """Whether all of them are finite as float32."""
    return bool((np.abs(values) <= _LARGEST).all())
