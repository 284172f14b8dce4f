"""Shapes of rows and samples, and the extras that belong to a sequence's first row."""

from typing import Any

import jax
import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec, stacked_shape


def row_spec(environment_spec: EnvironmentSpec, sequence: SequenceSpec) -> Row:
    """One row, as a `Row` of `jax.ShapeDtypeStruct`s."""

    def struct(spec: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(spec.shape, spec.dtype)

    flag = jax.ShapeDtypeStruct((), np.bool_)
    return Row(
        observation=struct(environment_spec.observations),
        reward=struct(environment_spec.rewards),
        discount=struct(environment_spec.discounts),
        is_first=flag,
        is_last=flag,
        action=struct(environment_spec.actions),
        extras=sequence.extras,
    )


def split_extras(row: Row, names: tuple[str, ...]) -> tuple[Row, dict[str, Any]]:
    """The row without the extras of these names, and these extras."""
    chosen = {name: row.extras[name] for name in names}
    rest = {name: value for name, value in row.extras.items() if name not in chosen}
    return row._replace(extras=rest), chosen


def join_extras(row: Row, extras: dict[str, Any]) -> Row:
    """The inverse of `split_extras`."""
    return row._replace(extras={**row.extras, **extras})


def sample_shapes(
    environment_spec: EnvironmentSpec,
    sequence: SequenceSpec,
    config: ReplayConfig,
    *,
    num_environments: int,
) -> list[Sample]:
    """All samples that a replay may return, as `jax.ShapeDtypeStruct`s.

    First that of a replayed batch; with on-policy updates, then that of the newest sequences.
    """
    row, first = split_extras(row_spec(environment_spec, sequence), sequence.first_row_extras)
    seen = stacked_shape(row.observation.shape, sequence.frame_stack)
    row = row._replace(observation=jax.ShapeDtypeStruct(seen, row.observation.dtype))

    def shapes(batch: int) -> Sample:
        def batched(specs: Any, *axes: int) -> Any:
            return jax.tree.map(
                lambda s: jax.ShapeDtypeStruct((batch, *axes, *s.shape), s.dtype), specs
            )

        return Sample(
            rows=join_extras(batched(row, sequence.length), batched(first)),
            weights=jax.ShapeDtypeStruct((batch,), np.float32),
            mask=jax.ShapeDtypeStruct((batch, sequence.length), np.bool_),
        )

    sizes = [config.draw_size] + [num_environments] * config.on_policy
    return [shapes(size) for size in sizes]


def within_episode(is_last: Any) -> Any:
    """False behind the first True of bool `[B, n]`, an array of NumPy or JAX."""
    return is_last.cumsum(axis=1) - is_last == 0


def stack_frames(frames: np.ndarray, is_first: np.ndarray, frame_stack: int) -> np.ndarray:
    """Puts the newest observations of each row together, as `SequenceSpec.frame_stack` says.

    Args:
      frames: `[B, k - 1 + n, ...]`, the observations of n rows, and of the k - 1 rows before them.
      is_first: bool `[B, k - 1 + n]`. What stands before an episode's first row is not read.
      frame_stack: k >= 1.

    Returns:
      `[B, n, ...]`, the last axis k times as long.
    """
    before = frame_stack - 1
    num_rows = frames.shape[1] - before
    layers = [frames[:, before:]]
    visible = np.ones((len(frames), num_rows), bool)  # `back` rows back is the same episode
    for back in range(1, frame_stack):
        visible &= ~is_first[:, frame_stack - back :][:, :num_rows]
        layer = frames[:, before - back :][:, :num_rows].copy()
        layer[~visible] = 0
        layers.append(layer)
    return np.concatenate(layers[::-1], axis=-1) if before else layers[0]
