"""The selectors of a store, and the slots that its sequences take for each of them."""

from .block_tree import BlockTree
from .priority_tree import ContextualPriorityTree
from .tree_selector import TreeSelector

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
) -> TreeSelector:
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
    options = {"priority_exponent": priority_exponent, "uniform_fraction": uniform_fraction}
    if kind == "contextual":
        return ContextualPriorityTree(capacity, **options)
    return BlockTree(capacity, rule="largest" if kind == "proportional" else "one", **options)
