"""Which stored sequence is sampled next: uniformly, by priority, or by lazily set priority.

A store numbers its sequences by slots `0 .. capacity - 1` in time order. All three selectors are
one `ContextualPriorityTree` and differ in what they tell it; `n` is the length of a batch of slots.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from .tree import ContextualPriorityTree, check_priorities


class Selector(Protocol):
    """Draws slots for a store. Whatever is refused, with a ValueError, changes nothing."""

    def insert(self, slots: np.ndarray) -> None:
        """Adds slots, integer `[n]`; one that is there already counts as new again."""

    def remove(self, slots: np.ndarray) -> None:
        """Takes slots away, integer `[n]`, distinct and present."""

    def set_priorities(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities `[n]`, at least 0, of present slots `[n]`; the last of a repeated one."""

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draws slots, int64 `[n]`, with replacement."""

    def probabilities(self, slots: np.ndarray) -> np.ndarray:
        """The probability of each of `slots` in one draw, float64 `[n]`."""

    def contains(self, slots: np.ndarray) -> np.ndarray:
        """Which of `slots` are present, bool `[n]`."""

    def __len__(self) -> int:
        """The number of present slots."""

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs; copies."""

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `state` gave, from a selector of the same kind and capacity."""


class ContextualSelector:
    """Reactor's prioritised sequence replay: new slots have the priority of their neighbourhood.

    `P(slot) = eps / N + (1 - eps) * p_hat / sum(p_hat)`, where p_hat is `priority ** alpha`, or its
    estimate by the `ContextualPriorityTree` as long as no priority was set. Reactor, Appendix,
    contextual priority tree. With alpha = 0 every priority is stored as 1, zero ones too.

    Args:
      capacity: the number of slots, at least 1.
      priority_exponent: alpha, at least 0; 1 in Reactor. `priority ** alpha` is at most 1e100.
      uniform_fraction: eps in [0, 1], the share of draws that are uniform.
    """

    def __init__(self, capacity: int, *, priority_exponent: float, uniform_fraction: float) -> None:
        if not 0 <= priority_exponent < np.inf:
            raise ValueError(
                f"priority_exponent must be finite and at least 0, got {priority_exponent}."
            )
        if not 0 <= uniform_fraction <= 1:
            raise ValueError(f"uniform_fraction must be from 0 to 1, got {uniform_fraction}.")
        self._tree = ContextualPriorityTree(capacity)
        self._exponent = priority_exponent
        self._uniform_fraction = uniform_fraction

    def __len__(self) -> int:
        return len(self._tree)

    def contains(self, slots: np.ndarray) -> np.ndarray:
        """See `Selector`."""
        return self._tree.contains(slots)

    def insert(self, slots: np.ndarray) -> None:
        """See `Selector`."""
        self._tree.insert(slots)

    def remove(self, slots: np.ndarray) -> None:
        """See `Selector`."""
        self._tree.remove(slots)

    def set_priorities(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """See `Selector`; priorities are `[n]`, finite, in [0, 1e100]."""
        # Before the power: NaN ** 0 is 1.
        priorities = check_priorities(priorities, np.size(slots))
        with np.errstate(over="ignore"):  # the tree refuses infinity
            powers = priorities**self._exponent
        self._tree.set_priorities(slots, powers)

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """See `Selector`; n is at least 1, and there must be a slot."""
        slots = self._tree.sample(rng, n)
        if self._uniform_fraction:
            uniform = np.flatnonzero(rng.random(n) < self._uniform_fraction)
            if uniform.size:
                slots[uniform] = self._tree.sample_uniform(rng, uniform.size)
        return slots

    def probabilities(self, slots: np.ndarray) -> np.ndarray:
        """See `Selector`."""
        by_priority = self._tree.probabilities(slots)
        uniform = 1 / max(len(self), 1)
        return self._uniform_fraction * uniform + (1 - self._uniform_fraction) * by_priority

    def state(self) -> dict[str, np.ndarray]:
        """See `Selector`."""
        return self._tree.state()

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """See `Selector`."""
        self._tree.restore(state)


class ProportionalSelector(ContextualSelector):
    """Prioritised experience replay: a new slot has the largest priority that was ever set.

    That is 1 until a larger one is set, and it never falls. Schaul et al., Prioritized Experience
    Replay, algorithm 1. Arguments as of `ContextualSelector`.
    """

    def __init__(self, capacity: int, *, priority_exponent: float, uniform_fraction: float) -> None:
        super().__init__(
            capacity, priority_exponent=priority_exponent, uniform_fraction=uniform_fraction
        )
        self._largest = 1.0

    def insert(self, slots: np.ndarray) -> None:
        """See `Selector`."""
        super().insert(slots)
        super().set_priorities(slots, np.full(np.shape(slots), self._largest))

    def set_priorities(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """See `Selector`; priorities are `[n]`, finite, in [0, 1e100]."""
        super().set_priorities(slots, priorities)
        self._largest = float(np.max(np.asarray(priorities, np.float64), initial=self._largest))

    def state(self) -> dict[str, np.ndarray]:
        """See `Selector`; the tree's, and `largest`, float64 `[]`."""
        return {**super().state(), "largest": np.asarray(self._largest)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """See `Selector`."""
        if "largest" not in state:
            raise ValueError(f"state must hold 'largest', got only {sorted(state)}.")
        largest = float(check_priorities(np.reshape(state["largest"], -1), 1)[0])
        super().restore(state)
        self._largest = largest


class UniformSelector(ContextualSelector):
    """Every slot alike: priorities stay unknown. Arguments as of `ContextualSelector`, idle."""

    def set_priorities(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """Reads neither: an agent's priorities mean nothing here."""


_SELECTORS = {
    "uniform": UniformSelector,
    "proportional": ProportionalSelector,
    "contextual": ContextualSelector,
}


def make_selector(
    kind: str, capacity: int, *, priority_exponent: float = 1.0, uniform_fraction: float = 0.0
) -> Selector:
    """Builds a selector.

    Args:
      kind: "uniform", "proportional" or "contextual".
      capacity: the number of slots, at least 1.
      priority_exponent: alpha, at least 0; with 0 even a priority of zero counts as 1.
      uniform_fraction: eps in [0, 1], the share of draws that are uniform.

    Returns:
      An empty selector.

    Raises:
      ValueError: for another kind, or an argument out of its range.
    """
    if kind not in _SELECTORS:
        raise ValueError(f"kind must be one of {sorted(_SELECTORS)}, got {kind!r}.")
    return _SELECTORS[kind](
        capacity, priority_exponent=priority_exponent, uniform_fraction=uniform_fraction
    )


def importance_weights(probabilities: np.ndarray, size: int, exponent: float) -> np.ndarray:
    """The weights `(1 / (size * P)) ** exponent` that undo the selector's preference.

    With exponent beta = 1, which Reactor fixes, `sum_i P_i w_i f_i` is the plain mean of f, so an
    update is unbiased. They are therefore not divided by their largest, which would make the size
    of a step depend on the batch.

    Args:
      probabilities: `[n]`, above 0, as the selector gave them for the drawn slots.
      size: the number of slots they are drawn from, at least 1.
      exponent: beta, at least 0; 0 makes every weight 1.

    Returns:
      float64 `[n]`.

    Raises:
      ValueError: if an argument is out of its range.
    """
    probabilities = np.asarray(probabilities, np.float64)
    if size < 1:
        raise ValueError(f"size must be at least 1 slot, got {size}.")
    if not 0 <= exponent < np.inf:
        raise ValueError(f"exponent must be finite and at least 0, got {exponent}.")
    wrong = ~((probabilities > 0) & (probabilities < np.inf))
    if wrong.any():
        raise ValueError(
            f"probabilities must be above 0 and finite, got {probabilities[wrong][0]}."
        )
    return (1 / (size * probabilities)) ** exponent
