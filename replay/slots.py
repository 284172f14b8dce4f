"""What trees of priorities have in common: slots `0 .. capacity - 1`, and their checks.

`n` denotes the length of a batch of slots.
"""

import abc
import operator
from collections.abc import Mapping

import numpy as np

from .priorities import check_priorities


class SlotTree(abc.ABC):
    """Draws present slots in proportion to their priorities.

    Every argument `slots` is an integer array `[n]` with entries in `[0, capacity)`; ValueError is
    raised for anything else. `n = 0` does nothing. A call that raises leaves the tree unchanged.

    Attributes:
      capacity: the number of slots.
    """

    def __init__(self, capacity: int) -> None:
        """An empty tree.

        Args:
          capacity: the number of slots, at least 1.
        """
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 slot, got {capacity}.")
        self.capacity = operator.index(capacity)
        self._stamp = np.zeros(self.capacity, np.int64)  # room for `_last`

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of present slots."""

    def insert(self, slots: np.ndarray) -> None:
        """Makes slots present and new, whether or not they were present before."""
        self._insert(self._checked(slots))

    def remove(self, slots: np.ndarray) -> None:
        """Makes slots absent.

        Raises:
          ValueError: a slot is absent or repeated.
        """
        slots = self._check_present(slots)
        last = self._last(slots)
        if not last.all():
            raise ValueError(f"slots to remove must be distinct, got {slots[~last][0]} twice.")
        self._remove(slots)

    def set_priorities(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities.

        Args:
          slots: present. A training batch may hold a slot twice: the last priority counts.
          priorities: `[n]`, in [0, 1e100].

        Raises:
          ValueError: a slot is absent, or priorities have another shape, are NaN, infinite,
            negative or too large.
        """
        slots = self._check_present(slots)
        self._set(slots, check_priorities(priorities, slots.size))

    def contains(self, slots: np.ndarray) -> np.ndarray:
        """Whether each slot is present, bool `[n]`."""
        return self._are_present(self._checked(slots))

    def probabilities(self, slots: np.ndarray) -> np.ndarray:
        """The probability of each slot in one draw of `sample`.

        Returns:
          float64 `[n]`; the sum over all present slots is 1.

        Raises:
          ValueError: a slot is absent.
        """
        slots = self._check_present(slots)
        if self._mass_of_all() == 0:
            return np.full(slots.shape, 1 / max(len(self), 1))
        return self._masses(slots) / self._mass_of_all()

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draws slots in proportion to their priorities, with replacement; uniformly if all are 0.

        Args:
          rng: source of randomness; the same seed gives the same slots.
          n: number of draws, at least 1.

        Returns:
          int64 `[n]`.

        Raises:
          ValueError: the tree is empty or n < 1.
        """
        self._check_draw(n)
        return self._draw(rng, n)

    def sample_uniform(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draws present slots uniformly, otherwise as `sample`."""
        self._check_draw(n)
        return self._draw_uniform(rng, n)

    @abc.abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """Copies of what `restore` needs, `present` (bool `[capacity]`) among them."""

    @abc.abstractmethod
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Replaces all slots by those of `state`, from a tree of the same kind and capacity.

        Raises:
          ValueError: an array is missing or of another shape or dtype, a slot that is not present
            has a priority, or priorities are not in [0, 1e100].
        """

    # Of slots that have been checked.

    @abc.abstractmethod
    def _insert(self, slots: np.ndarray) -> None: ...

    @abc.abstractmethod
    def _remove(self, slots: np.ndarray) -> None: ...

    @abc.abstractmethod
    def _set(self, slots: np.ndarray, priorities: np.ndarray) -> None: ...

    @abc.abstractmethod
    def _are_present(self, slots: np.ndarray) -> np.ndarray: ...

    @abc.abstractmethod
    def _masses(self, slots: np.ndarray) -> np.ndarray: ...

    @abc.abstractmethod
    def _mass_of_all(self) -> float: ...

    @abc.abstractmethod
    def _draw(self, rng: np.random.Generator, n: int) -> np.ndarray: ...

    @abc.abstractmethod
    def _draw_uniform(self, rng: np.random.Generator, n: int) -> np.ndarray: ...

    def _checked(self, slots: np.ndarray) -> np.ndarray:
        """Slots as int64 `[n]`; ValueError if they are no integers `[n]` in [0, capacity)."""
        slots = np.asarray(slots)
        if slots.dtype.kind not in "iu" or slots.ndim != 1:
            raise ValueError(
                "slots must be integers of shape [n], got "
                f"{slots.dtype} of shape {list(slots.shape)}."
            )
        if slots.size and (slots.min() < 0 or slots.max() >= self.capacity):
            wrong = slots[(slots < 0) | (slots >= self.capacity)][0]
            raise ValueError(f"slots must be from 0 to {self.capacity - 1}, got {wrong}.")
        return slots.astype(np.int64, copy=False)

    def _check_present(self, slots: np.ndarray) -> np.ndarray:
        slots = self._checked(slots)
        present = self._are_present(slots)
        if not present.all():
            raise ValueError(f"slots must be present (inserted), {slots[~present][0]} is not.")
        return slots

    def _check_draw(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1 draw, got {n}.")
        if not len(self):
            raise ValueError("an empty tree has nothing to sample: insert slots first, got none.")

    def _check_state(
        self, state: Mapping[str, np.ndarray], dtypes: Mapping[str, type], *, needs: str
    ) -> np.ndarray:
        """Checks a state, and returns its priorities.

        Args:
          state: of a tree.
          dtypes: of its arrays `[capacity]`.
          needs: an array; a slot with a priority or True there must be present.
        """
        for name, dtype in dtypes.items():
            found = np.asarray(state.get(name))
            if found.shape != (self.capacity,) or found.dtype != dtype:
                raise ValueError(
                    f"state[{name!r}] must be {np.dtype(dtype)} of shape ({self.capacity},), got "
                    f"{found.dtype} of shape {found.shape}."
                )
        priorities = check_priorities(state["priorities"], self.capacity)
        lost = np.flatnonzero((state[needs] > 0) & ~state["present"])
        if lost.size:
            raise ValueError(f"a slot with a priority must be present, {lost[0]} is absent.")
        return priorities

    def _last(self, slots: np.ndarray) -> np.ndarray:
        """Which entries are the last (or only) ones of their slot: bool `[n]`."""
        order = np.arange(slots.size)
        self._stamp[slots] = order  # NumPy keeps the last of repeated assignments
        return self._stamp[slots] == order
