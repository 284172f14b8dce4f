"""The contextual priority tree: prioritised selection that estimates unknown priorities.

`n` denotes the length of a batch of slots. Source: Reactor (Gruslys et al.), Appendix, contextual
priority tree, and the section on prioritised sequence replay.
"""

from collections.abc import Mapping

import numpy as np

# For batches at least this large, recomputing whole levels near the root is faster than following
# the path of each slot.
LARGE_BATCH = 256


class ContextualPriorityTree:
    """The tree of a contextual `TreeSelector`, which checks slots and priorities.

    Slots `0 .. capacity - 1` are in time order. A slot is absent, present with an unknown priority,
    or present with a known one.

    Let c be the number of present slots below a node and m their mean priority. A node's m is the
    mean of its children's m over those children with a known m, weighted by their c (which counts
    slots with unknown priorities too: the paper's w_i = |I_i|). A child without a known m takes its
    parent's. A child is entered with probability proportional to its mass c * m, so masses
    telescope and `P(slot) = estimate(slot) / (c_root * m_root)`. Hence

      * nothing known, or all known mass zero: uniform;
      * everything known: proportional prioritisation;
      * otherwise an unknown slot has the mean of the smallest subtree around it with a known one.

    The paper keeps keys in the nodes of an AVL tree, and makes a key a leaf when its priority is
    set. Here every key is a leaf of an implicit complete binary tree over the slots of a ring that
    new keys overwrite: no rotations, and a batch is one NumPy pass over the levels.

    Neighbours in the tree are neighbours in time if a ring's length L is a power of two, the ring
    begins at a multiple of L, and only its newest L / 2 slots can be present. Then at least L / 2
    absent slots separate the newest slot from the oldest one, so a subtree of up to L / 2 slots
    holds a contiguous run of time, and the estimate of a new slot is a mean over the newest slots
    of its ring. `selectors.slots_per_environment` chooses L.

    Masses are recomputed from children, so rounding errors do not accumulate. Every operation takes
    `O(n log capacity)`; memory is 48 to 88 bytes per slot.
    """

    def __init__(self, capacity: int) -> None:
        self._depth = (capacity - 1).bit_length()
        self._leaves = 1 << self._depth
        # Node 1 is the root, node i has children 2i and 2i + 1, slot s is node `_leaves + s`.
        self._count = np.zeros(2 * self._leaves, np.int32)  # c
        self._known = np.zeros(2 * self._leaves, np.int32)  # how many of them are known
        self._mass = np.zeros(2 * self._leaves)  # c * m, and 0 where m is unknown
        self._left = np.zeros(self._leaves)  # probability of the left child
        self._slots = slice(self._leaves, self._leaves + capacity)
        self.counts = self._count[self._slots]  # by slot, above 0 where it is present
        self._shifts = np.arange(self._depth + 1)[:, None]

    @property
    def count(self) -> int:
        """The number of present slots."""
        return int(self._count[1])

    @property
    def mass(self) -> float:
        """The sum of all masses."""
        return float(self._mass[1])

    def assign(self, slots: np.ndarray, present: bool | None, powers: np.ndarray | None) -> None:
        """Makes distinct slots present or absent, or leaves them so; unknown powers are None."""
        leaves = slots + self._leaves
        self._mass[leaves] = 0.0 if powers is None else powers
        # A large batch reaches most nodes of the upper levels many times.
        dense = 0 if slots.size < LARGE_BATCH else min(slots.size.bit_length(), self._depth)
        paths = self._paths(slots, self._depth - dense)
        for tally, now in ((self._count, present is not False), (self._known, powers is not None)):
            change = int(now) - tally[leaves]
            if change.any():
                np.add.at(tally, paths, np.broadcast_to(change, paths.shape))
        self._refresh(paths[1:])
        self._rebuild(dense)

    def masses(self, slots: np.ndarray) -> np.ndarray:
        """The powers or estimates of present slots."""
        paths = self._paths(slots, self._depth)
        nearest = (self._known[paths] > 0).argmax(axis=0)  # the first ancestor with a known mean
        nodes = paths[nearest, np.arange(slots.size)]
        return self._mass[nodes] / self._count[nodes]

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draws in proportion to masses; uniformly if all are 0.

        The probability of a left child is exactly 0 or 1 where one side has no mass, so rounding
        never selects an absent slot, nor one of mass zero while another has more.
        """
        nodes = np.ones(n, np.int64)
        for uniform in rng.random((self._depth, n)):
            right = uniform >= self._left[nodes]
            nodes += nodes
            nodes += right
        return nodes - self._leaves

    def draw_uniform(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draws present slots uniformly, by their counts."""
        ranks = rng.integers(self.count, size=n)
        nodes = np.ones(n, np.int64)
        for _ in range(self._depth):
            nodes += nodes
            before = self._count[nodes]
            right = ranks >= before
            ranks -= before * right
            nodes += right
        return nodes - self._leaves

    def state(self) -> dict[str, np.ndarray]:
        """See `TreeSelector`."""
        return {"known": self._known[self._slots] > 0, "priorities": self._mass[self._slots].copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores the leaves; inner nodes are recomputed."""
        self._count[self._slots] = state["present"]
        self._known[self._slots] = state["known"]
        self._mass[self._slots] = state["priorities"]
        self._rebuild(self._depth)

    def _paths(self, slots: np.ndarray, levels: int) -> np.ndarray:
        """Nodes from leaves (first row) to their ancestors `levels` up, `[levels + 1, n]`."""
        return (slots + self._leaves) >> self._shifts[: levels + 1]

    def _rebuild(self, levels: int) -> None:
        """Recomputes every node of the upper `levels` levels from the level below them."""
        for level in reversed(range(levels)):
            nodes = slice(1 << level, 2 << level)
            for tally in (self._count, self._known):
                tally[nodes] = tally[2 << level : 4 << level].reshape(-1, 2).sum(axis=1)
            self._refresh(np.arange(1 << level, 2 << level)[None])

    def _refresh(self, nodes: np.ndarray) -> None:
        """Recomputes mass and `_left` of nodes `[levels, n]`, lowest level first, from children.

        Only masses depend on the level below. A node may occur more than once.
        """
        left = nodes + nodes
        right = left + 1
        count_left = self._count[left]
        known_left = count_left * (self._known[left] > 0)
        count_right = self._count[right]
        weight = known_left + count_right * (self._known[right] > 0)
        count = count_left + count_right
        scales = count / np.maximum(weight, 1)  # from the children that know a mean to all
        for node, a, b, scale in zip(nodes, left, right, scales, strict=True):
            self._mass[node] = (self._mass[a] + self._mass[b]) * scale
        mass_left = self._mass[left]
        known_mass = mass_left + self._mass[right]
        # Left mass and mass, both times `weight`: exactly equal where the right side has none.
        mine = mass_left * weight + (count_left - known_left) * known_mass
        positive = known_mass > 0  # else by counts: nothing is known here, or all of it is zero
        self._left[nodes] = np.where(positive, mine, count_left) / np.where(
            positive, known_mass * count, np.maximum(count, 1)
        )
