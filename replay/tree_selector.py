"""Selection of stored sequences: draws in proportion to priorities from a tree of slots.

A store numbers its sequences by slots `0 .. capacity - 1`: a ring of `slots_per_environment` slots
for each environment, in time order. `n` denotes the length of a batch of slots.
"""

import abc
import operator
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np

from .priorities import LARGEST_PRIORITY, check_priorities

Rule: TypeAlias = Literal["one", "largest", "neighbours"]


class TreeSelector(abc.ABC):
    """Draws present slots in proportion to powers of their priorities, some of them uniformly.

    `P(slot) = eps / N + (1 - eps) * p / sum(p)` for N present slots, where p is `priority ** alpha`
    (1 for alpha = 0, that of priority 0 too); uniform if all p are 0. A rule gives new slots their
    priorities:

      * "one": 1, and priorities are never set: uniform selection;
      * "largest": the largest that was ever set, at least 1: proportional selection (Schaul et al.,
        Prioritized Experience Replay, algorithm 1);
      * "neighbours": an estimate by the tree until one is set: contextual selection (Reactor,
        Appendix, contextual priority tree).

    Every argument `slots` is an integer array `[n]` with entries in `[0, capacity)`; ValueError is
    raised for anything else. `n = 0` does nothing. A call that raises changes nothing.

    Attributes:
      capacity: the number of slots.
    """

    def __init__(
        self,
        capacity: int,
        *,
        rule: Rule,
        priority_exponent: float = 1.0,
        uniform_fraction: float = 0.0,
    ) -> None:
        """An empty tree.

        Args:
          capacity: the number of slots, at least 1.
          rule: for new slots.
          priority_exponent: alpha, at least 0; 1 in Reactor.
          uniform_fraction: eps in [0, 1], the fraction of uniform draws.

        Raises:
          ValueError: an argument is out of its range.
        """
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 slot, got {capacity}.")
        if not 0 <= priority_exponent < np.inf:
            raise ValueError(
                f"priority_exponent must be finite and at least 0, got {priority_exponent}."
            )
        if not 0 <= uniform_fraction <= 1:
            raise ValueError(f"uniform_fraction must be from 0 to 1, got {uniform_fraction}.")
        self.capacity = operator.index(capacity)
        self._rule, self._exponent = rule, priority_exponent
        self._uniform_fraction = uniform_fraction
        self._largest = 1.0  # priority that was set
        self._stamp = np.zeros(self.capacity, np.int64)  # room for `_last`

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of present slots."""

    def insert(self, slots: np.ndarray) -> None:
        """Makes slots present and new, whether or not they were present before."""
        slots = self._checked(slots)
        is_known = self._rule != "neighbours"
        self._insert(slots, self._powers(np.full(slots.shape, self._largest)) if is_known else None)

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

    def set_priorities(
        self, slots: np.ndarray, priorities: np.ndarray, kept: np.ndarray | None = None
    ) -> None:
        """Sets priorities; by the rule "one" it only checks them.

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
        if self._rule == "one":
            return
        if kept is not None:
            slots, priorities = slots[kept], priorities[kept]
        self._set(self._check_present(slots), self._powers(priorities))
        if self._rule == "largest":
            self._largest = float(np.max(priorities, initial=self._largest))

    def probabilities(self, slots: np.ndarray) -> np.ndarray:
        """The probability of each slot in one draw of `sample`.

        Returns:
          float64 `[n]`; the sum over all present slots is 1.

        Raises:
          ValueError: a slot is absent.
        """
        slots, eps, total = self._check_present(slots), self._uniform_fraction, self._mass_of_all()
        uniform = np.full(slots.shape, 1 / max(len(self), 1))
        return eps * uniform + (1 - eps) * (self._masses(slots) / total if total else uniform)

    def sample(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws slots with replacement.

        Args:
          rng: source of randomness; the same seed gives the same slots.
          n: number of draws, at least 1.

        Returns:
          Slots, int64 `[n]`, and their `probabilities`.

        Raises:
          ValueError: no slot is present, or n < 1.
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
        """Copies of what `restore` needs, `present` (bool `[capacity]`) among them."""
        largest = {"largest": np.asarray(self._largest)} if self._rule == "largest" else {}
        return {**self._state(), **largest}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Replaces all slots by those of `state`, from a tree of the same kind, rule and capacity.

        Raises:
          ValueError: an array is missing or of another shape or dtype, a slot that is not present
            has a priority, or priorities are not in [0, 1e100].
        """
        largest = self._largest
        if self._rule == "largest":
            if "largest" not in state:
                raise ValueError(f"state must hold 'largest', got only {sorted(state)}.")
            largest = float(check_priorities(np.reshape(state["largest"], -1), 1)[0])
        self._restore(state)
        self._largest = largest

    # Of slots that have been checked, and of powers of priorities.

    @abc.abstractmethod
    def _insert(self, slots: np.ndarray, powers: np.ndarray | None) -> None:
        """Makes slots present; None if their priorities are to be estimated."""

    @abc.abstractmethod
    def _remove(self, slots: np.ndarray) -> None: ...

    @abc.abstractmethod
    def _set(self, slots: np.ndarray, powers: np.ndarray) -> None: ...

    @abc.abstractmethod
    def _are_present(self, slots: np.ndarray) -> np.ndarray: ...

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
        present = self._are_present(slots)
        if not present.all():
            raise ValueError(f"slots must be present (inserted), {slots[~present][0]} is not.")
        return slots

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
