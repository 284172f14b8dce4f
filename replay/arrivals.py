"""Which of the rows that arrive are added: each once, and within an episode none is missing."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class _Position(NamedTuple):
    """Where an environment's rows are expected to continue."""

    writer: int
    number: int
    joined: bool  # whether rows are added, or wait for the next first row


class Arrivals:
    """The rows of some environments, each environment's sent by one writer at a time.

    Rows that arrive twice are dropped. Where rows are missing, or a writer has restarted, the
    episode is cut as by a time limit, and rows are added again from the next episode's first on.
    """

    def __init__(self, num_environments: int, cut: Callable[[int], None]):
        """Expects new writers.

        Args:
          num_environments: numbered from 0.
          cut: ends the running episode of an environment.
        """
        self._num_environments, self._cut = num_environments, cut
        self._next: dict[int, _Position] = {}  # by environment

    def begin(self, environment: int, writer: int, number: int, is_first: np.ndarray) -> int:
        """Index of the first of n rows to be added, n if none is; cuts where rows are missing.

        `passed` must follow, for all of them or some.

        Args:
          environment: whose rows these are.
          writer: who sent them.
          number: of the first one, by the writer.
          is_first: bool `[n]`.

        Raises:
          ValueError: there is no such environment.
        """
        if not 0 <= environment < self._num_environments:
            raise ValueError(
                f"Rows of environment {environment} arrived, but the replay was made for "
                f"{self._num_environments}: environments must be numbered from 0."
            )
        position = self._next.get(environment)
        if position is None or position.writer != writer or position.number < number:
            self._cut(environment)
            position = self._next[environment] = _Position(writer, number, False)
        skipped = position.number - number
        if position.joined or skipped >= len(is_first):
            return min(skipped, len(is_first))
        firsts = np.flatnonzero(is_first[skipped:])
        return skipped + int(firsts[0]) if firsts.size else len(is_first)

    def passed(self, environment: int, number: int, *, added: bool) -> None:
        """Continues at a row.

        Args:
          environment: whose rows were taken in.
          number: of the next row, by its writer; rows before were added or dropped.
          added: whether any of them was added.
        """
        position = self._next[environment]
        if number > position.number:
            joined = position.joined or added
            self._next[environment] = position._replace(number=number, joined=joined)

    def clear(self) -> None:
        """Expects new writers, of new episodes."""
        self._next.clear()
