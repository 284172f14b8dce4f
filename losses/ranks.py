"""Checks of arguments' shapes."""

from collections.abc import Sequence

import chex
from jax import Array


def assert_rank(ranks: int | Sequence[int], /, **arrays: Array) -> None:
    """`chex.assert_rank` with one rank for all or one for each; its error names the argument."""
    each = [ranks] * len(arrays) if isinstance(ranks, int) else ranks
    for (name, array), rank in zip(arrays.items(), each, strict=True):
        chex.assert_rank(array, rank, custom_message=f"It is the argument {name}.")


def assert_steps(**arrays: Array) -> None:
    """All have one entry for each of T >= 1 steps, `[T]`."""
    assert_rank(1, **arrays)
    chex.assert_equal_shape([*arrays.values()])
    chex.assert_axis_dimension_gt(next(iter(arrays.values())), 0, 0)
