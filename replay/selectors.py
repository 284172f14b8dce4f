"""Selection of stored sequences: draws in proportion to priorities from a tree of slots.

Sequences have slots `0 .. capacity - 1`: a ring of `slots_per_environment` slots for each
environment, in time order. `n` denotes the length of a batch of slots.
"""

from collections.abc import Mapping

import numpy as np

from ..datatypes import ReplayConfig

# A priority times the square of the number of slots must stay finite in float64.
LARGEST_PRIORITY = 1e100
_TOP = 1024  # sums in the top level, about
# For batches at least this large, recomputing whole levels near the root is faster than following
# the path of each slot.
LARGE_BATCH = 256


class ContextualPriorityTree:
    """The contextual priority tree of Reactor (Appendix) in a `TreeSelector`, which checks values.

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


def slots_per_environment(kind: str, num_starts: int) -> int:
    """The length of an environment's ring, which can have `num_starts` >= 1 sequences at a time.

    Contextual selection needs a power of two, so that every environment has a subtree of its own,
    and twice the slots, so that the newest sequences and the oldest are not neighbours: see
    `ContextualPriorityTree`.
    """
    return 1 << (2 * num_starts - 1).bit_length() if kind == "contextual" else num_starts


def has_tables(config: ReplayConfig) -> bool:
    """Whether Reverb can keep a replay: it has neither contextual selection nor rounds."""
    return config.selector != "contextual" and config.pace == "steady"


def importance_weights(probabilities: np.ndarray, size: int, exponent: float) -> np.ndarray:
    """Importance weights `(1 / (size * P)) ** exponent` of probabilities `[n]` of drawn slots.

    With exponent beta = 1, which Reactor fixes, `sum_i P_i w_i f_i` is the plain mean of f, so an
    update is unbiased. The weights are not divided by their maximum: the scale of an update would
    depend on the batch. `size` >= 1 slots can be drawn; ValueError if a probability is not above 0.
    """
    probabilities = np.asarray(probabilities, np.float64)
    wrong = ~((probabilities > 0) & (probabilities < np.inf))
    if wrong.any():
        raise ValueError(
            f"probabilities must be above 0 and finite, got {probabilities[wrong][0]}."
        )
    return (1 / (size * probabilities)) ** exponent


def check_priorities(
    priorities: np.ndarray, size: int, largest: float = LARGEST_PRIORITY
) -> np.ndarray:
    """Priorities as float64 `[size]`; ValueError unless all are in [0, largest]."""
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


class TreeSelector:
    """Draws present slots in proportion to powers of their priorities, some of them uniformly.

    `P(slot) = eps / N + (1 - eps) * p / sum(p)` for N present slots, where p is `priority ** alpha`
    (1 for alpha = 0, even of priority 0); uniform if all p are 0. The config has alpha, eps and
    the kind of selector, which says which priority a new slot has:

      * "uniform": 1, and priorities are never set;
      * "proportional": the largest that was ever set, at least 1 (Schaul et al., Prioritized
        Experience Replay, algorithm 1);
      * "contextual": an estimate by the tree until one is set (Reactor, Appendix, contextual
        priority tree).

    Every argument `slots` is an int64 array `[n]` with entries in `[0, capacity)`, which is not
    checked. `n = 0` does nothing. A call that raises changes nothing.
    """

    def __init__(self, config: ReplayConfig, capacity: int) -> None:
        """Makes `capacity` slots, all absent."""
        self.capacity, self._kind = capacity, config.selector
        self._exponent, self._uniform_fraction = config.priority_exponent, config.uniform_fraction
        self._largest = 1.0  # priority that was set
        self._stamp = np.zeros(capacity, np.int64)  # room for `_last`
        tree = ContextualPriorityTree if self._kind == "contextual" else _BlockTree
        self._tree: ContextualPriorityTree | _BlockTree = tree(capacity)

    def __len__(self) -> int:
        """The number of present slots."""
        return self._tree.count

    def are_present(self, slots: np.ndarray) -> np.ndarray:
        """Which slots are present: bool `[n]`."""
        return self._tree.counts[slots] > 0

    def insert(self, slots: np.ndarray) -> None:
        """Makes slots present and new, whether or not they were present before."""
        if self._kind == "contextual":
            self._tree.assign(slots[self._last(slots)], True, None)
        else:
            self._tree.assign(slots, True, self._powers(np.full(slots.shape, self._largest)))

    def remove(self, slots: np.ndarray) -> None:
        """Makes distinct slots absent; ValueError if one is absent."""
        self._tree.assign(self._check_present(slots), False, None)

    def set_priorities(
        self, slots: np.ndarray, priorities: np.ndarray, kept: np.ndarray | None = None
    ) -> None:
        """Sets priorities `[n]` of present slots; for "uniform" it only checks them.

        Of a repeated slot the last one counts. They and their powers must be in [0, 1e100]. `kept`,
        bool `[n]`, says which are set, None for all; the other slots need not be present.
        """
        limit = LARGEST_PRIORITY ** (1 / max(1.0, self._exponent))
        priorities = check_priorities(priorities, np.size(slots), limit)
        if self._kind == "uniform":
            return
        if kept is not None:
            slots, priorities = slots[kept], priorities[kept]
        slots = self._check_present(slots)
        last = self._last(slots)
        self._tree.assign(slots[last], None, self._powers(priorities[last]))
        if self._kind == "proportional":
            self._largest = float(np.max(priorities, initial=self._largest))

    def probabilities(self, slots: np.ndarray) -> np.ndarray:
        """The probability of each present slot in one draw of `sample`: float64 `[n]`."""
        slots, eps, total = self._check_present(slots), self._uniform_fraction, self._tree.mass
        uniform = np.full(slots.shape, 1 / max(len(self), 1))
        return eps * uniform + (1 - eps) * (self._tree.masses(slots) / total if total else uniform)

    def sample(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws n >= 1 slots with replacement: int64 `[n]`, and their `probabilities`."""
        if not len(self):
            raise ValueError("an empty tree has nothing to sample: insert slots first, got none.")
        slots = self._tree.draw(rng, n)
        if self._uniform_fraction:
            uniform = np.flatnonzero(rng.random(n) < self._uniform_fraction)
            if uniform.size:
                slots[uniform] = self._tree.draw_uniform(rng, uniform.size)
        return slots, self.probabilities(slots)

    def state(self) -> dict[str, np.ndarray]:
        """Copies of arrays `[capacity]` for `restore`, and `largest` if "proportional".

        `priorities` are powers, 0 where absent or unknown. `present` is bool, as is `known`, which
        a contextual tree has besides.
        """
        largest = {"largest": np.asarray(self._largest)} if self._kind == "proportional" else {}
        present = self._tree.counts[: self.capacity] > 0
        return {"present": present, **self._tree.state(), **largest}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Replaces all slots; ValueError if the state is from another kind or capacity."""
        for name, like in self.state().items():
            found = np.asarray(state.get(name))
            if (found.shape, found.dtype) != (like.shape, like.dtype):
                raise ValueError(
                    f"state[{name!r}] must be {like.dtype} of shape {like.shape}, got "
                    f"{found.dtype} of shape {found.shape}."
                )
        self._tree.restore(state)
        self._largest = float(state.get("largest", self._largest))

    def _powers(self, priorities: np.ndarray) -> np.ndarray:
        powers: np.ndarray = priorities**self._exponent
        return np.minimum(powers, LARGEST_PRIORITY)  # beyond it by rounding at most

    def _check_present(self, slots: np.ndarray) -> np.ndarray:
        present = self.are_present(slots)
        if not present.all():
            raise ValueError(f"slots must be present (inserted), but {slots[~present][0]} is not.")
        return slots

    def _last(self, slots: np.ndarray) -> np.ndarray:
        """Which entries are the last (or only) ones of their slot: bool `[n]`."""
        order = np.arange(slots.size)
        self._stamp[slots] = order  # NumPy keeps the last of repeated assignments
        return self._stamp[slots] == order


class _BlockTree:
    """As a `ContextualPriorityTree`, where all priorities are known.

    Its three levels of wide nodes take fewer NumPy calls than the 20 of a binary tree of a million
    slots (benchmarks/priority_tree.py).
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._present, self._priorities = _BlockSums(capacity), _BlockSums(capacity)
        self.counts, self.masses = self._present.values, self._priorities.values.__getitem__
        self.draw_uniform = self._present.draw

    @property
    def count(self) -> int:
        return int(self._present.cumulative[-1])

    @property
    def mass(self) -> float:
        return float(self._priorities.cumulative[-1])

    def assign(self, slots: np.ndarray, present: bool | None, powers: np.ndarray | None) -> None:
        if present is not None:
            self._present.assign(slots, float(present))
        self._priorities.assign(slots, 0.0 if powers is None else powers)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return (self._priorities if self.mass else self._present).draw(rng, n)

    def state(self) -> dict[str, np.ndarray]:
        return {"priorities": self._priorities.values[: self._capacity].copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._present.fill(state["present"])
        self._priorities.fill(state["priorities"])


class _BlockSums:
    """Values >= 0 in blocks of W, their sums in blocks of W, and the sums of these: three levels.

    Sums are computed from their parts whenever one changes, so rounding does not accumulate.

    Attributes:
      values: at least `size` of them. Read only.
      cumulative: sums of the uppermost level; the last one is the sum of all values.
    """

    def __init__(self, size: int) -> None:
        self._width = max(4, int(np.ceil((size / _TOP) ** 0.5)))
        num_top = -(-size // self._width**2)
        self.values = np.zeros(num_top * self._width**2)
        self._middle, self._top = np.zeros(num_top * self._width), np.zeros(num_top)
        self.cumulative = np.zeros(num_top)

    def assign(self, indices: np.ndarray, values: np.ndarray | float) -> None:
        """Sets the values of indices `[n]`; of repeated ones, the last counts."""
        self.values[indices] = values
        blocks = indices // self._width
        self._middle[blocks] = self._blocks(self.values, blocks).sum(axis=1)
        blocks = blocks // self._width
        self._top[blocks] = self._blocks(self._middle, blocks).sum(axis=1)
        self.cumulative = np.cumsum(self._top)

    def fill(self, values: np.ndarray) -> None:
        """Sets all values `[size]`."""
        self.values[: len(values)] = values
        each_block = np.arange(0, self.values.size, self._width)
        self.assign(each_block, self.values[each_block])

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draws n indices in proportion to values, int64 `[n]`; the total must be positive.

        At each level, the first cumulative sum above a uniform number belongs to a value above 0.
        """
        uniforms = rng.random((3, n))
        totals = np.full(n, self.cumulative[-1])
        indices = self.cumulative.searchsorted(_below(totals, uniforms[0]), side="right")
        for values, uniform in ((self._middle, uniforms[1]), (self.values, uniforms[2])):
            cumulative = self._blocks(values, indices).cumsum(axis=1)
            numbers = _below(cumulative[:, -1], uniform)
            indices = indices * self._width + (cumulative > numbers[:, None]).argmax(axis=1)
        return indices

    def _blocks(self, values: np.ndarray, blocks: np.ndarray) -> np.ndarray:
        return values.reshape(-1, self._width).take(blocks, axis=0)  # twice as fast as an index


def _below(totals: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Numbers in [0, total) from numbers in [0, 1): a product may be rounded up to the total."""
    return np.minimum(totals * uniforms, np.nextafter(totals, 0.0))
