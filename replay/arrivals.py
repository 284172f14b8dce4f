"""Which of the rows that arrive are added: each once, and within an episode none is missing."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .local import LocalReplay


class _Position(NamedTuple):
    """Where an environment's rows are expected to continue."""

    writer: int
    number: int
    joined: bool  # False: the next row is the first of what is stored after a cut


class Arrivals:
    """The rows of a `LocalReplay`'s environments, each environment's sent by one writer at a time.

    Rows that arrive twice are dropped. Where rows are missing, or a writer or the replay has
    restarted, the episode is cut as by a time limit. The next row that arrives is stored as the
    first one of an episode, though it may be from the middle: an episode may never end.
    """

    def __init__(self, local: LocalReplay):
        """Expects new writers."""
        self._local = local
        self._next: dict[int, _Position] = {}  # by environment

    def take_in(
        self,
        writer: int,
        numbers: Sequence[int],
        environments: Sequence[int],
        rows: np.ndarray,
        add: Callable[[Sequence[np.ndarray], np.ndarray], bool],
    ) -> bool:
        """Takes in a chunk of rows, one time step of all its environments after the other.

        Args:
          writer: who sent them; unlike all others, and its own earlier lives.
          numbers: `[n]`, of the first row of each environment, by the writer.
          environments: `[n]`, whose rows they are.
          rows: packed, uint8 `[T, n, row_bytes]`.
          add: adds rows as `LocalReplay.add_packed`; False if they must wait.

        Returns:
          Whether all rows were taken in; if not, the same chunk must arrive again.

        Raises:
          ValueError: there is no such environment.
        """
        packing, pairs = self._local.packing, list(zip(environments, numbers, strict=True))
        begins = np.array([self._begin(*pair, writer) for pair in pairs])
        joined = np.array([self._next[environment].joined for environment in environments])
        columns, index = np.array(environments), min(int(begins.min()), len(rows))
        while index < len(rows):
            begun = begins <= index
            packed = packing.split(rows[index, begun])  # copies
            is_first, _ = packing.flags(packed[0])
            is_first |= ~(joined | (begins < index))[begun]
            if not add(packed, columns[begun]):
                break
            index += 1
        for (environment, number), begin in zip(pairs, begins, strict=True):
            position = self._next[environment]
            if number + index > position.number:
                joins = position.joined or bool(begin < index)
                self._next[environment] = _Position(writer, number + index, joins)
        return index == len(rows)

    def clear(self) -> None:
        """Expects new writers."""
        self._next.clear()

    def _begin(self, environment: int, number: int, writer: int) -> int:
        """How many rows of a chunk have been added already; cuts where rows are missing."""
        if not 0 <= environment < self._local.num_envs:
            raise ValueError(
                f"Rows of environment {environment} arrived, but the replay was made for "
                f"{self._local.num_envs}: environments must be numbered from 0."
            )
        position = self._next.get(environment)
        if position is None or position.writer != writer or position.number < number:
            self._local.cut(environment)
            position = self._next[environment] = _Position(writer, number, False)
        return position.number - number
