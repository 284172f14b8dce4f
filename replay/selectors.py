"""The selectors of a store, and the weights of what they draw; the contextual one is apart."""

from collections.abc import Mapping

import numpy as np

from ..datatypes import ReplayConfig
from .priority_tree import ContextualPriorityTree
from .tree_selector import TreeSelector

_TOP = 1024  # sums in the top level, about


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


def has_tables(config: ReplayConfig) -> bool:
    """Whether Reverb can keep a replay: it has neither contextual selection nor rounds."""
    return config.selector != "contextual" and config.pace == "steady"


def make_selector(
    kind: str, capacity: int, *, priority_exponent: float = 1.0, uniform_fraction: float = 0.0
) -> TreeSelector:
    """Makes an empty selector; arguments and errors are those of `TreeSelector`."""
    options = {"priority_exponent": priority_exponent, "uniform_fraction": uniform_fraction}
    if kind == "contextual":
        return ContextualPriorityTree(capacity, **options)
    return BlockTree(kind, capacity, **options)


def importance_weights(probabilities: np.ndarray, size: int, exponent: float) -> np.ndarray:
    """Importance weights `(1 / (size * P)) ** exponent`.

    With exponent beta = 1, which Reactor fixes, `sum_i P_i w_i f_i` is the plain mean of f, so an
    update is unbiased. The weights are not divided by their maximum: the scale of an update would
    depend on the batch.

    Args:
      probabilities: `[n]`, above 0, of the drawn slots, as returned by the selector.
      size: the number of slots that can be drawn, at least 1.
      exponent: beta, at least 0; with 0 every weight is 1.

    Returns:
      float64 `[n]`.

    Raises:
      ValueError: a probability is out of its range.
    """
    probabilities = np.asarray(probabilities, np.float64)
    wrong = ~((probabilities > 0) & (probabilities < np.inf))
    if wrong.any():
        raise ValueError(
            f"probabilities must be above 0 and finite, got {probabilities[wrong][0]}."
        )
    return (1 / (size * probabilities)) ** exponent


class BlockTree(TreeSelector):
    """A `TreeSelector` of the kind "uniform" or "proportional": priorities are known, nodes wide.

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

    def _assign(self, slots: np.ndarray, present: bool | None, powers: np.ndarray | None) -> None:
        if present is not None:
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
