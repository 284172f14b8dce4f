"""Selection of stored sequences: draws in proportion to priorities from a tree of slots.

A store numbers its sequences by slots `0 .. capacity - 1`: a ring of `slots_per_environment` slots
for each environment, in time order. `n` denotes the length of a batch of slots.
"""

import abc
import operator
from collections.abc import Mapping

import numpy as np

KINDS = ("contextual", "proportional", "uniform")
# A priority times the square of the number of slots must stay finite in float64.
LARGEST_PRIORITY = 1e100


def check_priorities(
    priorities: np.ndarray, size: int, largest: float = LARGEST_PRIORITY
) -> np.ndarray:
    """Priorities as float64 `[size]`.

    Raises:
      ValueError: they have another shape, or one of them is NaN, infinite, negative or above
        `largest`.
    """
    priorities = np.asarray(priorities, dtype=np.float64)
    if priorities.shape != (size,):
        raise ValueError(
            f"priorities must have one entry per slot, shape ({size},), got {priorities.shape}."
        )
    wrong = ~((priorities >= 0) & (priorities <= largest))  # also true for NaN
    if wrong.any():
        raise ValueError(
            f"priorities must be finite, at least 0 and at most {largest:g}, got "
            f"{priorities[wrong][0]}."
        )
    return priorities


class TreeSelector(abc.ABC):
    """Draws present slots in proportion to powers of their priorities, some of them uniformly.

    `P(slot) = eps / N + (1 - eps) * p / sum(p)` for N present slots, where p is `priority ** alpha`
    (1 for alpha = 0, that of priority 0 too); uniform if all p are 0. The kind says which priority
    a new slot has:

      * "uniform": 1, and priorities are never set;
      * "proportional": the largest that was ever set, at least 1 (Schaul et al., Prioritized
        Experience Replay, algorithm 1);
      * "contextual": an estimate by the tree until one is set (Reactor, Appendix, contextual
        priority tree).

    Every argument `slots` is an integer array `[n]` with entries in `[0, capacity)`; ValueError is
    raised for anything else. `n = 0` does nothing. A call that raises changes nothing.

    Attributes:
      capacity: the number of slots.

    Args:
      kind: "uniform", "proportional" or "contextual".
      capacity: the number of slots, at least 1.
      priority_exponent: alpha, at least 0; 1 in Reactor.
      uniform_fraction: eps in [0, 1], the fraction of uniform draws.

    Raises:
      ValueError: an argument is out of its range.
    """

    _counts: np.ndarray  # by slot: 1 if it is present, else 0

    def __init__(
        self,
        kind: str,
        capacity: int,
        *,
        priority_exponent: float = 1.0,
        uniform_fraction: float = 0.0,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {[*KINDS]}, got {kind!r}.")
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 slot, got {capacity}.")
        if not 0 <= priority_exponent < np.inf:
            raise ValueError(
                f"priority_exponent must be finite and at least 0, got {priority_exponent}."
            )
        if not 0 <= uniform_fraction <= 1:
            raise ValueError(f"uniform_fraction must be from 0 to 1, got {uniform_fraction}.")
        self.capacity = operator.index(capacity)
        self._kind, self._exponent = kind, priority_exponent
        self._uniform_fraction = uniform_fraction
        self._largest = 1.0  # priority that was set
        self._stamp = np.zeros(self.capacity, np.int64)  # room for `_last`

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of present slots."""

    def are_present(self, slots: np.ndarray) -> np.ndarray:
        """Which slots are present: bool `[n]`."""
        return self._counts[slots] > 0

    def insert(self, slots: np.ndarray) -> None:
        """Makes slots present and new, whether or not they were present before."""
        slots = self._checked(slots)
        is_known = self._kind != "contextual"
        powers = self._powers(np.full(slots.shape, self._largest)) if is_known else None
        self._assign(slots, True, powers)

    def remove(self, slots: np.ndarray) -> None:
        """Makes slots absent; ValueError if one is absent or repeated."""
        slots = self._check_present(slots)
        last = self._last(slots)
        if not last.all():
            raise ValueError(f"slots to remove must be distinct, got {slots[~last][0]} twice.")
        self._assign(slots, False, None)

    def set_priorities(
        self, slots: np.ndarray, priorities: np.ndarray, kept: np.ndarray | None = None
    ) -> None:
        """Sets priorities; for "uniform" it only checks them.

        Args:
          slots: present. A training batch may hold a slot twice: the last priority counts.
          priorities: `[n]`, in [0, 1e100], and so must be their powers.
          kept: bool `[n]`, which of them are set; all if None. The others need not be present, but
            their priorities are checked too.

        Raises:
          ValueError: a slot is absent, or priorities have another shape, are NaN, infinite,
            negative or too large.
        """
        limit = LARGEST_PRIORITY ** (1 / max(1.0, self._exponent))
        priorities = check_priorities(priorities, np.size(slots), limit)
        if self._kind == "uniform":
            return
        if kept is not None:
            slots, priorities = slots[kept], priorities[kept]
        self._assign(self._check_present(slots), None, self._powers(priorities))
        if self._kind == "proportional":
            self._largest = float(np.max(priorities, initial=self._largest))

    def probabilities(self, slots: np.ndarray) -> np.ndarray:
        """The probability of each slot in one draw of `sample`: float64 `[n]`.

        The sum over all present slots is 1. ValueError if a slot is absent.
        """
        slots, eps, total = self._check_present(slots), self._uniform_fraction, self._mass_of_all()
        uniform = np.full(slots.shape, 1 / max(len(self), 1))
        return eps * uniform + (1 - eps) * (self._masses(slots) / total if total else uniform)

    def sample(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws n slots with replacement: int64 `[n]`, and their `probabilities`.

        ValueError if n < 1, or no slot is present.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1 draw, got {n}.")
        if not len(self):
            raise ValueError("an empty tree has nothing to sample: insert slots first, got none.")
        slots = self._draw(rng, n)
        if self._uniform_fraction:
            uniform = np.flatnonzero(rng.random(n) < self._uniform_fraction)
            if uniform.size:
                slots[uniform] = self._draw_uniform(rng, uniform.size)
        return slots, self.probabilities(slots)

    def state(self) -> dict[str, np.ndarray]:
        """Copies of what `restore` needs: arrays `[capacity]`, and `largest` if "proportional".

        `present` is bool. `priorities` are powers, float64, 0 where absent or unknown; a contextual
        tree has `known`, bool, besides.
        """
        largest = {"largest": np.asarray(self._largest)} if self._kind == "proportional" else {}
        return {"present": self._counts[: self.capacity] > 0, **self._state(), **largest}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Replaces all slots by those of `state`, from a tree of the same kind and capacity.

        Raises:
          ValueError: an array is missing or of another shape or dtype, a slot that is not present
            has a priority, or priorities are not in [0, 1e100].
        """
        for name, like in self.state().items():
            found = np.asarray(state.get(name))
            if (found.shape, found.dtype) != (like.shape, like.dtype):
                raise ValueError(
                    f"state[{name!r}] must be {like.dtype} of shape {like.shape}, got "
                    f"{found.dtype} of shape {found.shape}."
                )
        check_priorities(state["priorities"], self.capacity)
        largest = check_priorities(np.reshape(state.get("largest", self._largest), 1), 1)
        known = np.asarray(state.get("known", state["priorities"])) > 0
        lost = np.flatnonzero(known & ~np.asarray(state["present"]))
        if lost.size:
            raise ValueError(f"a slot with a priority must be present, {lost[0]} is absent.")
        self._restore(state)
        self._largest = float(largest[0])

    # Of slots that have been checked, and of powers of priorities.

    @abc.abstractmethod
    def _assign(self, slots: np.ndarray, present: bool | None, powers: np.ndarray | None) -> None:
        """Makes slots present or absent, None if they are present; powers are None if unknown.

        Of a repeated slot, the last power counts.
        """

    @abc.abstractmethod
    def _masses(self, slots: np.ndarray) -> np.ndarray: ...

    @abc.abstractmethod
    def _mass_of_all(self) -> float: ...

    @abc.abstractmethod
    def _draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """In proportion to masses; uniformly if all are 0."""

    @abc.abstractmethod
    def _draw_uniform(self, rng: np.random.Generator, n: int) -> np.ndarray: ...

    @abc.abstractmethod
    def _state(self) -> dict[str, np.ndarray]: ...

    @abc.abstractmethod
    def _restore(self, state: Mapping[str, np.ndarray]) -> None: ...

    def _powers(self, priorities: np.ndarray) -> np.ndarray:
        powers: np.ndarray = priorities**self._exponent
        return np.minimum(powers, LARGEST_PRIORITY)  # beyond it by rounding at most

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
        present = self.are_present(slots)
        if not present.all():
            raise ValueError(f"slots must be present (inserted), {slots[~present][0]} is not.")
        return slots

    def _last(self, slots: np.ndarray) -> np.ndarray:
        """Which entries are the last (or only) ones of their slot: bool `[n]`."""
        order = np.arange(slots.size)
        self._stamp[slots] = order  # NumPy keeps the last of repeated assignments
        return self._stamp[slots] == order
