"""Uniform and proportional selection: a tree of known priorities with wide nodes."""

from collections.abc import Mapping

import numpy as np

from .tree_selector import TreeSelector

_TOP = 1024  # sums in the top level, about


class BlockTree(TreeSelector):
    """A `TreeSelector` of the kind "uniform" or "proportional".

    Estimates need the binary nodes of a `ContextualPriorityTree`. Without them a tree of three
    levels does: NumPy calls, which small batches consist of, are a few at each level, and a binary
    tree of a million slots has 20 (benchmarks/priority_tree.py).
    """

    def __init__(self, kind: str, capacity: int, **options: float) -> None:
        super().__init__(kind, capacity, **options)
        self._present, self._priorities = _BlockSums(capacity), _BlockSums(capacity)
        self._counts = self._present.values

    def __len__(self) -> int:
        """The number of present slots."""
        return int(self._present.total)

    def _assign(self, slots: np.ndarray, present: bool, powers: np.ndarray | None) -> None:
        if (self.are_present(slots) != present).any():
            self._present.assign(slots, float(present))
        self._priorities.assign(slots, 0.0 if powers is None else powers)

    def _masses(self, slots: np.ndarray) -> np.ndarray:
        return self._priorities.values[slots]

    def _mass_of_all(self) -> float:
        return self._priorities.total

    def _draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return (self._priorities if self._priorities.total else self._present).draw(rng, n)

    def _draw_uniform(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return self._present.draw(rng, n)

    def _state(self) -> dict[str, np.ndarray]:
        return {"priorities": self._priorities.values[: self.capacity].copy()}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._present.fill(state["present"])
        self._priorities.fill(state["priorities"])


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
        """Sets the values of distinct indices `[n]`."""
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
