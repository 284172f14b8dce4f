"""Selectors of a store: the slots that its sequences take, and the weights of what is drawn."""

import numpy as np

from .block_tree import BlockTree
from .priority_tree import ContextualPriorityTree
from .tree_selector import TreeSelector


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
