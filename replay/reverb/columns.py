"""The columns of Reverb's tables. `T + 1` denotes the rows of a sequence, `B` a batch."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ...datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from ..rows import join_extras, row_spec, split_extras
from .library import tensorflow

QUEUE = "rows"  # a queue of chunks of rows, for contextual selection
SEQUENCES = "sequences"  # the table of sequences otherwise
NEWEST = "newest"  # a queue of sequences for on-policy updates, besides that table
_ORIGIN = jax.ShapeDtypeStruct((3,), np.int64)  # environment, writer, number of its first row


def table_names(config: ReplayConfig) -> tuple[str, ...]:
    """The tables that every item of a writer goes to."""
    if config.selector == "contextual":
        return (QUEUE,)
    return (SEQUENCES, NEWEST) if config.on_policy else (SEQUENCES,)


class Columns:
    """Maps rows to the numbered columns of a table's items, and back.

    First come the leaves of a row, over time. Then, once per item: in a table of sequences, the
    extras of the first row; in the queue, the origin of the rows. In the queue these extras travel
    with every row, since only the learner's store knows where sequences start.

    Attributes:
      environment_spec: of one environment.
      sequence: length, period and extras of the sequences.
      config: of the replay.
      tables: names of the tables that every item goes to.
    """

    def __init__(
        self, environment_spec: EnvironmentSpec, sequence: SequenceSpec, config: ReplayConfig
    ):
        self.environment_spec, self.sequence, self.config = environment_spec, sequence, config
        self.tables = table_names(config)
        self._queued = self.tables == (QUEUE,)
        self._first_names = () if self._queued else sequence.first_row_extras
        self._row, self._first = split_extras(
            row_spec(environment_spec, sequence), self._first_names
        )
        self._num_leaves = len(jax.tree.leaves(self._row))

    def signature(self) -> tuple[tensorflow.TensorSpec, ...]:
        """Shapes of an item; its number of rows is open where it may differ."""

        def spec(path: Any, struct: Any, time: tuple[int | None, ...]) -> tensorflow.TensorSpec:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            # TensorFlow's names begin with a letter; the origin has no path.
            return tensorflow.TensorSpec((*time, *struct.shape), struct.dtype, name or "origin")

        fixed = self.sequence.crosses_episodes and not self._queued
        length = self.sequence.length if fixed else None
        once = _ORIGIN if self._queued else self._first
        return (
            *(spec(*leaf, (length,)) for leaf in jax.tree_util.tree_leaves_with_path(self._row)),
            *(spec(*leaf, ()) for leaf in jax.tree_util.tree_leaves_with_path(once)),
        )

    def step(self, row: Row, *, origin: Sequence[int], starts: bool) -> list[Any]:
        """One step of Reverb's writer, with None in columns without a value.

        Args:
          row: unbatched.
          origin: environment, writer, number of the row; only the queue stores it.
          starts: whether a sequence starts here; the queue ignores it.
        """
        rest, first = split_extras(row, self._first_names)
        if self._queued:
            return [*jax.tree.leaves(rest), np.asarray(origin, np.int64)]
        values = jax.tree.leaves(first)
        return [*jax.tree.leaves(rest), *(values if starts else [None] * len(values))]

    def trajectory(self, history: Sequence[Any], newest: int) -> list[Any]:
        """The item of the `newest` last steps in a writer's history."""
        over_time = [column[-newest:] for column in history[: self._num_leaves]]
        return [*over_time, *(column[-newest] for column in history[self._num_leaves :])]

    def rows(self, item: Sequence[np.ndarray]) -> Row:
        """The rows `[n, ...]` of an item; extras of the first row alone are without that axis."""
        leaves, once = item[: self._num_leaves], item[self._num_leaves :]
        rest: Row = jax.tree.unflatten(jax.tree.structure(self._row), leaves)
        first = jax.tree.unflatten(jax.tree.structure(self._first), () if self._queued else once)
        return join_extras(rest, first)

    def batch(self, items: Sequence[Sequence[np.ndarray]]) -> tuple[Row, np.ndarray]:
        """Sequences `[B, T+1, ...]` of items, padded with zeros, and their mask `[B, T+1]`."""
        padded = [self._pad(self.rows(item)) for item in items]
        rows, mask = jax.tree.map(lambda *x: np.stack(x), *padded)
        return rows, mask

    def _pad(self, rows: Row) -> tuple[Row, np.ndarray]:
        length, num_rows = self.sequence.length, len(rows.is_last)
        missing = length - num_rows

        def pad(x: np.ndarray) -> np.ndarray:
            return np.pad(x, [(0, missing)] + [(0, 0)] * (x.ndim - 1)) if missing else x

        rest, first = split_extras(rows, self._first_names)
        return join_extras(jax.tree.map(pad, rest), first), np.arange(length) < num_rows
