"""Selection of stored sequences: uniform, proportional to priorities, or contextual.

A store numbers its sequences by slots `0 .. capacity - 1`: a ring of `slots_per_environment` slots
for each environment, in time order. `n` denotes the length of a batch of slots.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from .block_tree import BlockTree
from .priorities import check_priorities
from .priority_tree import ContextualPriorityTree
from .slots import SlotTree


class Selector(Protocol):
    """Draws slots. A call that raises ValueError changes nothing."""

    def insert(self, slots: np.ndarray) -> None:
        """Adds slots, integer `[n]`; a slot that is present already becomes new again."""

    def remove(self, slots: np.ndarray) -> None:
        """Removes slots, integer `[n]`, distinct and present."""

    def set_priorities(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities `[n]`, in [0, 1e100], of present slots `[n]`; of repeated ones, the last.

        Raises:
          ValueError: a slot is not present, or a priority is out of its range.
        """

    def sample(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws n >= 1 slots with replacement: slots, int64 `[n]`, and their probabilities.

        A probability, float64, is that of its slot in one draw.

        Raises:
          ValueError: no slot is present.
        """

    def state(self) -> dict[str, np.ndarray]:
        """Copies of what `restore` needs; `present`, bool `[capacity]`, is one of the entries."""

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores the state of a selector of the same kind and capacity."""


class TreeSelector:
    """Draws from a tree of powers of priorities, some of them uniformly.

    `P(slot) = eps / N + (1 - eps) * p_hat / sum(p_hat)`, where p_hat is `priority ** alpha`, or the
    tree's own number for a slot whose priority was not set. With alpha = 0 every priority is stored
    as 1, zero included.

    With a `ContextualPriorityTree` it is Reactor's prioritised sequence replay: new slots have the
    priority of their neighbourhood (Reactor, Appendix, contextual priority tree).

    Args:
      tree: an empty one.
      priority_exponent: alpha, at least 0; 1 in Reactor. `priority ** alpha` is at most 1e100.
      uniform_fraction: eps in [0, 1], the fraction of uniform draws.
    """

    def __init__(
        self,
        tree: SlotTree,
        *,
        priority_exponent: float,
        uniform_fraction: float,
    ) -> None:
        if not 0 <= priority_exponent < np.inf:
            raise ValueError(
                f"priority_exponent must be finite and at least 0, got {priority_exponent}."
            )
        if not 0 <= uniform_fraction <= 1:
            raise ValueError(f"uniform_fraction must be from 0 to 1, got {uniform_fraction}.")
        self._tree = tree
        self._exponent = priority_exponent
        self._uniform_fraction = uniform_fraction

    def insert(self, slots: np.ndarray) -> None:
        """Adds slots; their priorities are not set."""
        self._tree.insert(slots)

    def remove(self, slots: np.ndarray) -> None:
        """Removes slots from the tree."""
        self._tree.remove(slots)

    def set_priorities(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """Stores powers of priorities."""
        # Before the power: NaN ** 0 is 1.
        priorities = check_priorities(priorities, np.size(slots))
        with np.errstate(over="ignore"):  # the tree refuses infinity
            powers = priorities**self._exponent
        self._tree.set_priorities(slots, powers)

    def sample(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws from the tree; each draw is replaced by a uniform one with probability eps."""
        slots, eps = self._tree.sample(rng, n), self._uniform_fraction
        if eps:
            uniform = np.flatnonzero(rng.random(n) < eps)
            if uniform.size:
                slots[uniform] = self._tree.sample_uniform(rng, uniform.size)
        return slots, eps * (1 / len(self._tree)) + (1 - eps) * self._tree.probabilities(slots)

    def state(self) -> dict[str, np.ndarray]:
        """State of the tree."""
        return self._tree.state()

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores the tree."""
        self._tree.restore(state)


class ProportionalSelector:
    """Prioritised experience replay: a new slot has the largest priority that was ever set.

    The largest priority starts at 1 and never falls. Schaul et al., Prioritized Experience Replay,
    algorithm 1.

    Args:
      selector: holds the slots.
    """

    def __init__(self, selector: TreeSelector) -> None:
        self._selector = selector
        self.remove, self.sample = selector.remove, selector.sample
        self._largest = 1.0

    def insert(self, slots: np.ndarray) -> None:
        """Adds slots with the largest priority."""
        self._selector.insert(slots)
        self._selector.set_priorities(slots, np.full(np.shape(slots), self._largest))

    def set_priorities(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities and updates the largest."""
        self._selector.set_priorities(slots, priorities)
        self._largest = float(np.max(np.asarray(priorities, np.float64), initial=self._largest))

    def state(self) -> dict[str, np.ndarray]:
        """State of the slots, and `largest`, float64 `[]`."""
        return {**self._selector.state(), "largest": np.asarray(self._largest)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores the slots and the largest priority."""
        if "largest" not in state:
            raise ValueError(f"state must hold 'largest', got only {sorted(state)}.")
        largest = float(check_priorities(np.reshape(state["largest"], -1), 1)[0])
        self._selector.restore(state)
        self._largest = largest


class UniformSelector:
    """Uniform selection: priorities are never set, so that all slots are alike.

    Args:
      selector: holds the slots.
    """

    def __init__(self, selector: TreeSelector) -> None:
        self._selector = selector
        self.insert, self.remove, self.sample = selector.insert, selector.remove, selector.sample
        self.state = selector.state

    def set_priorities(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """Ignores the priorities; neither argument is read."""

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores which slots are present; older states had other priorities."""
        present = np.asarray(state.get("present"))
        self._selector.restore({**state, "priorities": present.astype(np.float64)})


_KINDS = ("contextual", "proportional", "uniform")


def slots_per_environment(kind: str, num_starts: int) -> int:
    """The length of the ring of slots that an environment's sequences take in turn.

    Uniform and proportional selection do not depend on the order of the slots. Contextual selection
    needs a power of two, so that every environment has a subtree of its own, and twice the slots,
    so that the newest sequences and the oldest are not neighbours: see `ContextualPriorityTree`.
    This costs 2 to 4 slots per sequence.

    Args:
      kind: "uniform", "proportional" or "contextual".
      num_starts: the number of sequences that an environment can have at a time, at least 1.

    Returns:
      `num_starts`; for "contextual" the least power of two that is at least `2 * num_starts`.
    """
    return 1 << (2 * num_starts - 1).bit_length() if kind == "contextual" else num_starts


def make_selector(
    kind: str, capacity: int, *, priority_exponent: float = 1.0, uniform_fraction: float = 0.0
) -> Selector:
    """Makes an empty selector.

    Args:
      kind: "uniform", "proportional" or "contextual".
      capacity: the number of slots, at least 1.
      priority_exponent: alpha, at least 0; with 0 even a priority of zero counts as 1.
      uniform_fraction: eps in [0, 1], the fraction of uniform draws.

    Raises:
      ValueError: for another kind, or an argument out of its range.
    """
    if kind not in _KINDS:
        raise ValueError(f"kind must be one of {list(_KINDS)}, got {kind!r}.")
    tree = ContextualPriorityTree(capacity) if kind == "contextual" else BlockTree(capacity)
    selector = TreeSelector(
        tree, priority_exponent=priority_exponent, uniform_fraction=uniform_fraction
    )
    if kind == "contextual":
        return selector
    return ProportionalSelector(selector) if kind == "proportional" else UniformSelector(selector)
