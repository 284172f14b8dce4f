"""The memory of a store: rows in preallocated rings, one ring per environment.

`E` denotes the number of environments, `C` the rows of a ring, `P` the period of the sequences,
`B` the number of sequences and `T + 1` their length. `index` denotes positions in a ring.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..basics.memory import check_memory
from ..datatypes import EnvironmentSpec, ReplayConfig, SequenceSpec
from .packing import SequencePacking


class RowRings:
    """Packed rows, one ring `[C, bytes]` for each environment.

    Extras of sequences' first rows are kept at every P-th position, `[C / P, bytes]`.

    Attributes:
      nbytes: of all rings.

    Args:
      packing: of the rows.
      num_envs: E.
      num_rows: C, a multiple of P.

    Raises:
      ValueError: less memory is available than the rings need.
    """

    def __init__(self, packing: SequencePacking, *, num_envs: int, num_rows: int):
        self._packing, self._num_envs, self._num_rows = packing, num_envs, num_rows
        self._sequence = packing.sequence
        # Rows between the positions of each part; the rings of a part are one array.
        self._periods = (1, self._sequence.period)[: len(packing.parts)]
        shapes = _ring_shapes(packing, num_rows * num_envs)
        self._rings = [np.zeros(shape, np.uint8) for shape in shapes]
        self.nbytes = sum(ring.nbytes for ring in self._rings)
        self._is_last = packing.flags(self._rings[0])[1]

    def write(
        self, environments: np.ndarray, index: np.ndarray, packed: Sequence[np.ndarray]
    ) -> None:
        """Writes packed rows, parts `[n, bytes]`, at `index` `[n]` of environments `[n]`."""
        position = environments * self._num_rows + index
        for ring, period, part in zip(self._rings, self._periods, packed, strict=True):
            kept = position % period == 0
            ring[position[kept] // period] = part[kept]

    def end_episodes(self, environments: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Makes rows the last of their episodes; returns which of them were not, bool `[n]`."""
        position = environments * self._num_rows + index
        running: np.ndarray = ~self._is_last[position]
        self._is_last[position] = True
        return running

    def take(self, environments: np.ndarray, starts: np.ndarray, out: Sequence[np.ndarray]) -> None:
        """Copies the sequences that begin at some positions.

        Args:
          environments: `[B]`.
          starts: positions `[B]`, multiples of P.
          out: arrays for `SequencePacking.unpack`; rows become zeros where the mask is False.
        """
        begin, before = environments * self._num_rows, self._packing.before
        steps = np.arange(-before, self._sequence.length)
        steps = (starts[:, None] + steps) % self._num_rows
        index = (begin[:, None] + steps, (begin + starts) // self._sequence.period)
        for ring, i, part in zip(self._rings, index, out, strict=False):
            np.take(ring, i, axis=0, out=part, mode="clip")  # "raise" copies twice
        if not self._sequence.crosses_episodes:
            out[0][:, before:][~self._packing.mask(out[0])] = 0

    def state(self, filled: int) -> dict[str, dict[str, np.ndarray]]:
        """Views of the first `filled` rows of all rings, by the names of the leaves."""
        parts: dict[str, dict[str, np.ndarray]] = {"rows": {}, "first": {}}
        for found, packing, ring, period in zip(
            parts.values(), self._packing.parts, self._rings, self._periods, strict=False
        ):
            for name, leaf in packing.fields(ring).items():
                rings = leaf.reshape(self._num_envs, -1, *leaf.shape[1:])
                found[name] = rings[:, : -(-filled // period)]
        return parts

    def restore(self, state: Mapping[str, Any]) -> None:
        """Copies the rows of a `state` into the rings."""
        for part, leaves in self.state(self._num_rows).items():
            for name, rings in leaves.items():
                rings[:, : state[part][name].shape[1]] = state[part][name]


def _ring_shapes(packing: SequencePacking, rows: int) -> list[tuple[int, int]]:
    """The shapes of all rings of each part; refuses more than the memory that is available."""
    sizes = zip(packing.parts, (1, packing.sequence.period), strict=False)
    shapes = [(rows // period, part.dtype.itemsize) for part, period in sizes]
    check_memory(f"A replay of {rows} rows", sum(map(math.prod, shapes)), rows)
    return shapes


def check_capacity(
    environment_spec: EnvironmentSpec,
    sequence: SequenceSpec,
    config: ReplayConfig,
    *,
    num_envs: int,
) -> None:
    """Refuses what `SequenceStore` would refuse, without making one."""
    rows = num_envs * rows_per_environment(sequence, config, num_envs)
    _ring_shapes(SequencePacking(environment_spec, sequence), rows)


def rows_per_environment(sequence: SequenceSpec, config: ReplayConfig, num_envs: int) -> int:
    """Rows of a ring: a multiple of the period.

    Raises:
      ValueError: the capacity is too small for one sequence per environment, or for `min_rows`.
    """
    config = config.for_environments(num_envs)
    period, length = sequence.period, sequence.length + sequence.frame_stack - 1
    rows = config.capacity // num_envs // period * period
    least = -(-length // period) * period
    if rows < length:
        raise ValueError(
            f"A replay capacity of {config.capacity} rows over {num_envs} environments keeps "
            f"{rows} rows each, but a sequence needs {length}: at least {least} rows each, "
            f"{num_envs * least} in all, are needed."
        )
    return rows
