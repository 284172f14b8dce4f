"""Shapes of rows and samples, and the extras that belong to a sequence's first row."""

from typing import Any

import jax
import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec


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
