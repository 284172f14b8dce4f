"""Shapes of rows and samples, and what says how stored rows are cut into sequences."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec, sample_shape

_STORED_AS = "stored_as"
_CUT = ("length", "period", "crosses_episodes", "frame_stack")


def row_spec(environment_spec: EnvironmentSpec, sequence: SequenceSpec) -> Row:
    """One row, as a `Row` of `jax.ShapeDtypeStruct`s."""
    plain = dataclasses.replace(sequence, frame_stack=1, first_row_extras=())
    rows: Row = sample_shape(environment_spec, plain, 1).rows
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), rows)


def sample_shapes(
    environment_spec: EnvironmentSpec,
    sequence: SequenceSpec,
    config: ReplayConfig,
    *,
    num_envs: int,
) -> list[Sample]:
    """See `Replay.shapes`."""
    sizes = [config.draw_size] + [num_envs] * config.on_policy
    return [sample_shape(environment_spec, sequence, size) for size in sizes]


def split_extras(row: Row, names: tuple[str, ...]) -> tuple[Row, dict[str, Any]]:
    """The row without the extras of these names, and these extras."""
    chosen = {name: row.extras[name] for name in names}
    rest = {name: value for name, value in row.extras.items() if name not in chosen}
    return row._replace(extras=rest), chosen


def within_episode(is_last: Any) -> Any:
    """False behind the first True of bool `[B, n]`, an array of NumPy or JAX."""
    return is_last.cumsum(axis=1) - is_last == 0


def stack_frames(frames: Any, is_first: Any, frame_stack: int, xp: Any = np) -> Any:
    """Puts the newest observations of each row together, as `SequenceSpec.frame_stack` says.

    From `[B, k - 1 + n, ...]`, n rows and the k - 1 >= 1 before them, to `[B, n, ...]` with the
    last axis k times as long. What stands before an episode's first row is not read. `xp` is the
    namespace of the arrays, `numpy` or `jax.numpy`.
    """
    num_rows = frames.shape[1] - frame_stack + 1
    layers = [frames[:, frame_stack - 1 :]]
    visible = xp.ones((len(frames), num_rows), bool)  # `back` rows back is the same episode
    for back in range(1, frame_stack):
        visible = visible & ~is_first[:, frame_stack - back :][:, :num_rows]
        layer = frames[:, frame_stack - 1 - back :][:, :num_rows]
        layers.append(where_rows(visible, layer, xp))
    return xp.concatenate(layers[::-1], axis=-1)


def where_rows(mask: Any, x: Any, xp: Any = np) -> Any:
    """Rows `[B, n, ...]` where the mask `[B, n]` is True, else 0."""
    if xp is not np:
        return xp.where(mask.reshape(mask.shape + (1,) * (x.ndim - 2)), x, xp.zeros((), x.dtype))
    x = x.copy()  # with NumPy, faster than `where`
    x[~mask] = 0
    return x


def stored_as(sequence: SequenceSpec, config: ReplayConfig) -> dict[str, dict[str, np.ndarray]]:
    """How the rows of a snapshot are cut and selected: rows and priorities do not show it."""
    numbers = {name: np.array(int(getattr(sequence, name))) for name in _CUT}
    return {_STORED_AS: {**numbers, "selector": np.frombuffer(config.selector.encode(), np.uint8)}}


def check_stored_as(state: Mapping[str, Any], sequence: SequenceSpec, config: ReplayConfig) -> None:
    """Refuses (ValueError) the state of a replay with other sequences or another selector."""

    def text(value: Any) -> str:
        return value.tobytes().decode(errors="replace") if value.ndim else str(value)

    found, wanted = state[_STORED_AS], stored_as(sequence, config)[_STORED_AS]
    differing = [name for name in wanted if not np.array_equal(found[name], wanted[name])]
    if differing:
        stored = ", ".join(f"{name} {text(found[name])}" for name in differing)
        given = ", ".join(text(wanted[name]) for name in differing)
        raise ValueError(f"the stored rows have {stored}, but the config has {given}")
