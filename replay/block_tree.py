"""A tree of known priorities with wide nodes, for proportional and uniform selection.

`n` denotes the length of a batch of slots.
"""

from collections.abc import Mapping

import numpy as np

from .priorities import check_priorities
from .slots import SlotChecks

_TOP = 1024  # sums in the top level, about


class BlockTree:
    """Draws slots in proportion to their priorities; new slots have priority 1.

    Its methods are those of `ContextualPriorityTree`, whose estimates need binary nodes. Without
    them a tree of three levels does: NumPy calls, which small batches consist of, are a few at each
    level, and a binary tree of a million slots has 20 (benchmarks/priority_tree.py).

    Every argument `slots` is an integer array `[n]` with entries in `[0, capacity)`; ValueError is
    raised for anything else. `n = 0` does nothing. A call that raises leaves the tree unchanged.
    """

    def __init__(self, capacity: int) -> None:
        self._checks = SlotChecks(capacity)
        self._present = _BlockSums(capacity)
        self._priorities = _BlockSums(capacity)

    def __len__(self) -> int:
        """The number of present slots."""
        return int(self._present.total)

    def insert(self, slots: np.ndarray) -> None:
        """Makes slots present with priority 1, whether or not they were present before."""
        slots = self._checks.check(slots)
        self._present.assign(slots, 1.0)
        self._priorities.assign(slots, 1.0)

    def remove(self, slots: np.ndarray) -> None:
        """Makes slots absent.

        Raises:
          ValueError: a slot is absent or repeated.
        """
        slots = self._check_present(slots)
        self._checks.check_distinct(slots)
        self._present.assign(slots, 0.0)
        self._priorities.assign(slots, 0.0)

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
        self._priorities.assign(slots, check_priorities(priorities, slots.size))

    def probabilities(self, slots: np.ndarray) -> np.ndarray:
        """The probability of each slot in one draw of `sample`.

        Returns:
          float64 `[n]`; the sum over all present slots is 1.

        Raises:
          ValueError: a slot is absent.
        """
        slots = self._check_present(slots)
        total = self._priorities.total
        if total == 0:
            return np.full(slots.shape, 1 / max(len(self), 1))
        return self._priorities.values[slots] / total

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
        self._checks.check_draw(n, len(self))
        return (self._priorities if self._priorities.total else self._present).draw(rng, n)

    def sample_uniform(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draws present slots uniformly, otherwise as `sample`."""
        self._checks.check_draw(n, len(self))
        return self._present.draw(rng, n)

    def state(self) -> dict[str, np.ndarray]:
        """Copies of what `restore` needs.

        Returns:
          `present`, bool `[capacity]`, and `priorities`, float64 `[capacity]`, 0 where absent.
        """
        slots = slice(self._checks.capacity)
        return {
            "present": self._present.values[slots] > 0,
            "priorities": self._priorities.values[slots].copy(),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Replaces all slots by those of `state`, from a tree of the same capacity.

        Raises:
          ValueError: an array is missing or of another shape or dtype, an absent slot has a
            priority, or priorities are not in [0, 1e100].
        """
        self._checks.check_state(state, {"present": np.bool_, "priorities": np.float64})
        priorities = check_priorities(state["priorities"], self._checks.capacity)
        lost = np.flatnonzero((priorities > 0) & ~state["present"])
        if lost.size:
            raise ValueError(f"a slot with a priority must be present, {lost[0]} is absent.")
        self._present.fill(state["present"])
        self._priorities.fill(priorities)

    def _check_present(self, slots: np.ndarray) -> np.ndarray:
        slots = self._checks.check(slots)
        self._checks.check_present(slots, self._present.values[slots] > 0)
        return slots


class _BlockSums:
    """Values >= 0 in blocks of W, their sums in blocks of W, and the sums of these: three levels.

    Sums are computed from their parts whenever one changes, so rounding does not accumulate.

    Attributes:
      values: at least `size` of them, the level of the leaves. Read only.
    """

    def __init__(self, size: int) -> None:
        self._width = max(4, int(np.ceil((size / _TOP) ** 0.5)))
        num_top = -(-size // self._width**2)
        self.values = np.zeros(num_top * self._width**2)
        self._middle, self._top = np.zeros(num_top * self._width), np.zeros(num_top)
        self._cumulative = np.zeros(num_top)

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._cumulative[-1])

    def assign(self, indices: np.ndarray, values: np.ndarray | float) -> None:
        """Sets the values of indices `[n]`; of repeated ones, the last counts."""
        self.values[indices] = values
        blocks = indices // self._width
        self._middle[blocks] = self._blocks(self.values, blocks).sum(axis=1)
        blocks = blocks // self._width
        self._top[blocks] = self._blocks(self._middle, blocks).sum(axis=1)
        self._cumulative = np.cumsum(self._top)

    def fill(self, values: np.ndarray) -> None:
        """Sets all values `[size]`."""
        self.values[: len(values)] = values
        self._middle[:] = self.values.reshape(-1, self._width).sum(axis=1)
        self._top[:] = self._middle.reshape(-1, self._width).sum(axis=1)
        self._cumulative = np.cumsum(self._top)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draws n indices in proportion to values, int64 `[n]`; the total must be positive.

        At each level a uniform number below the total is looked up among the cumulative sums: the
        first sum above it belongs to a value that is not 0.
        """
        uniforms = rng.random((3, n))
        totals = np.full(n, self._cumulative[-1])
        indices = self._cumulative.searchsorted(_below(totals, uniforms[0]), side="right")
        for values, uniform in ((self._middle, uniforms[1]), (self.values, uniforms[2])):
            cumulative = self._blocks(values, indices).cumsum(axis=1)
            numbers = _below(cumulative[:, -1], uniform)
            indices = indices * self._width + (cumulative > numbers[:, None]).argmax(axis=1)
        return indices

    def _blocks(self, values: np.ndarray, blocks: np.ndarray) -> np.ndarray:
        """Copies of blocks `[n, W]`; `take` is twice as fast as an index."""
        return values.reshape(-1, self._width).take(blocks, axis=0)


def _below(totals: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Numbers in [0, total) from numbers in [0, 1): a product may be rounded up to the total."""
    return np.minimum(totals * uniforms, np.nextafter(totals, 0.0))
