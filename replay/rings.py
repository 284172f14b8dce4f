"""The memory of a store: rows in preallocated rings, one ring per environment.

`E` denotes the number of environments, `C` the rows of a ring, `P` the period of the sequences,
`B` the number of sequences and `T + 1` their length. `index` denotes positions in a ring.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import psutil

from ..datatypes import Row, SequenceSpec
from .rows import join_extras, split_extras, stack_frames


class RowRings:
    """Rows `[E, C]`, and the extras of sequences' first rows at every P-th position, `[E, C / P]`.

    Args:
      row: one row, as `jax.ShapeDtypeStruct`s.
      sequence: length, period and first-row extras.
      num_envs: E.
      num_rows: C, a multiple of P.

    Raises:
      ValueError: less memory is available than the rings need.
    """

    def __init__(self, row: Row, sequence: SequenceSpec, *, num_envs: int, num_rows: int):
        self._sequence, self._num_rows = sequence, num_rows
        row, first = split_extras(row, sequence.first_row_extras)
        num_starts = num_rows // sequence.period
        _check_memory(_size(row) * num_rows + _size(first) * num_starts, num_rows, num_envs)

        def zeros(length: int, specs: Any) -> Any:
            return jax.tree.map(lambda s: np.zeros((num_envs, length, *s.shape), s.dtype), specs)

        self._rows: Row = zeros(num_rows, row)
        self._first: dict[str, Any] = zeros(num_starts, first)

    @property
    def nbytes(self) -> int:
        """Bytes of all rings."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves((self._rows, self._first)))

    def write(self, environments: np.ndarray, index: np.ndarray, rows: Row) -> None:
        """Writes rows `[n, ...]`, all extras included, at `index` `[n]` of environments `[n]`."""
        rest, first = split_extras(rows, self._sequence.first_row_extras)
        starts = index % self._sequence.period == 0
        if first and starts.any():
            first = jax.tree.map(lambda values: np.asarray(values)[starts], first)
            _assign(
                self._first, environments[starts], index[starts] // self._sequence.period, first
            )
        _assign(self._rows, environments, index, rest)

    def end_episodes(self, environments: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Makes rows the last of their episodes; returns which of them were not, bool `[n]`."""
        running: np.ndarray = ~self._rows.is_last[environments, index]
        self._rows.is_last[environments, index] = True
        return running

    def read(self, environments: np.ndarray, starts: np.ndarray) -> tuple[Row, np.ndarray]:
        """The sequences that begin at some positions.

        Args:
          environments: `[B]`.
          starts: positions `[B]`, multiples of P.

        Returns:
          Rows `[B, T+1, ...]`, with extras of the first row `[B, ...]`, and the mask `[B, T+1]`:
          where sequences must not cross episodes, False after the last row of the episode, and
          the rows are zeros there.
        """
        index = self._index(environments, starts, 0)
        rows: Row = jax.tree.map(lambda ring: _flat(ring).take(index, axis=0), self._rows)
        if self._sequence.frame_stack > 1:
            rows = rows._replace(observation=self._stacks(environments, starts))
        mask = np.ones(rows.is_last.shape, bool)
        if not self._sequence.crosses_episodes:
            mask = np.cumsum(rows.is_last, axis=1) - rows.is_last == 0
            for values in jax.tree.leaves(rows):
                values[~mask] = 0
        index = (environments * self._num_rows + starts) // self._sequence.period
        first = jax.tree.map(lambda ring: _flat(ring).take(index, axis=0), self._first)
        return join_extras(rows, first), mask

    def _index(self, environments: np.ndarray, starts: np.ndarray, before: int) -> np.ndarray:
        """Of the rows of sequences, and of some rows before them, in flat rings."""
        steps = np.arange(-before, self._sequence.length)
        return (starts[:, None] + steps) % self._num_rows + environments[:, None] * self._num_rows

    def _stacks(self, environments: np.ndarray, starts: np.ndarray) -> np.ndarray:
        frame_stack = self._sequence.frame_stack
        index = self._index(environments, starts, frame_stack - 1)
        is_first = _flat(self._rows.is_first).take(index)
        return stack_frames(
            _flat(self._rows.observation).take(index, axis=0), is_first, frame_stack
        )

    def state(self, filled: int) -> dict[str, dict[str, np.ndarray]]:
        """Views of the first `filled` rows of all rings, by the paths of the leaves."""
        starts = -(-filled // self._sequence.period)
        return {
            "rows": {name: ring[:, :filled] for name, ring in _named(self._rows)},
            "first": {name: ring[:, :starts] for name, ring in _named(self._first)},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Copies the rows of a `state` into the rings."""
        for rings, values in ((self._rows, state["rows"]), (self._first, state.get("first") or {})):
            for name, ring in _named(rings):
                ring[:, : values[name].shape[1]] = values[name]


def _check_memory(needed: int, num_rows: int, num_envs: int) -> None:
    """Checks the memory for `needed` bytes for each environment."""
    needed, rows = needed * num_envs, num_rows * num_envs
    available = psutil.virtual_memory().available
    if needed > available:
        raise ValueError(
            f"A replay of {rows} rows needs {needed / 1e9:.1f} GB, but only "
            f"{available / 1e9:.1f} GB of memory are available: at most "
            f"{int(rows * available / needed)} rows fit."
        )


def _assign(rings: Any, environments: np.ndarray, index: np.ndarray, values: Any) -> None:
    def assign(ring: np.ndarray, new: np.ndarray) -> None:
        ring[environments, index] = new

    jax.tree.map(assign, rings, values)


def _size(spec: Any) -> int:
    return sum(int(np.prod(s.shape)) * np.dtype(s.dtype).itemsize for s in jax.tree.leaves(spec))


def _flat(ring: np.ndarray) -> np.ndarray:
    """`[E, n, ...]` as `[E * n, ...]`, a view: taking along one axis is several times faster."""
    return ring.reshape(-1, *ring.shape[2:])


def _named(tree: Any) -> list[tuple[str, np.ndarray]]:
    """Leaves with their paths as names: snapshots do not depend on the types of the tree."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in leaves]
