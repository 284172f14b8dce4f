"""A replay that other nodes call: rows in, draws out, priorities back."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .local import LocalReplay


class ReplayNode:
    """Answers the writers of actors (`NodeWriter`) and the learner (`RemoteReplay`).

    Calls may come from any thread, and wait for a second at most: several threads must be there to
    answer them, two for each writer and `ahead` + 4 for the learner.
    """

    def __init__(self, local: LocalReplay, *, max_lead: int, life: int = 0):
        """Takes an empty replay.

        Args:
          local: holds the rows.
          max_lead: time steps that are added at most while a call of updates is due that the
            learner has not drawn, >= 0.
          life: restarts of this node.
        """
        raise NotImplementedError

    def greet(self) -> dict[str, Any]:
        """What writers and readers check: `layout`, `num_environments`, `life`."""
        raise NotImplementedError

    def add(
        self,
        writer: int,
        number: int,
        environments: Sequence[int],
        rows: np.ndarray,
        timeout: float,
    ) -> bool:
        """Takes in a chunk of rows; False if some must be sent again, since actors are ahead."""
        raise NotImplementedError

    def begin(self, layout: str) -> tuple[int, int]:
        """A reader begins: life, and the number of its first draw. Takes unused draws back."""
        raise NotImplementedError

    def draw(self, life: int, number: int, timeout: float) -> np.ndarray | None:
        """The draw of a number, one buffer; None if it is not due within some seconds."""
        raise NotImplementedError

    def set_priorities(self, life: int, number: int, priorities: np.ndarray) -> None:
        """Sets the priorities of a draw; those of another life are dropped."""
        raise NotImplementedError

    def status(self) -> tuple[Any, ...]:
        """The fields of a `ReplayStatus`."""
        raise NotImplementedError

    def state(self, used: int | None = None) -> dict[str, Any]:
        """A pytree of arrays, views of the rows, as if draws after number `used` were not made.

        To be saved within `paused`. None: as if all draws were used that were answered.
        """
        raise NotImplementedError

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int] | None = None) -> None:
        """Restores a state; writers' rows are added from their next episodes on.

        Args:
          state: of a node; of a `LocalReplay` if counters are given.
          counters: steps, updates and learning_since.
        """
        raise NotImplementedError

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is added, drawn or set in this block."""
        yield
