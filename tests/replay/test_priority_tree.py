"""The trees of slots against slow definitions."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import scipy.stats
from benchmark_modules import load

from retrax.replay import ReplayConfig, TreeSelector

UNKNOWN = np.nan
CAPACITIES = (1, 2, 3, 5, 8, 13, 37)
# A tree of blocks has 1 to 3 nodes in each level; of four values for 5,000 slots, of five for more.
BLOCK_CAPACITIES = (1, 2, 5, 16, 17, 37, 5_000, 20_000)


def make(kind, capacity, fraction=0.0):
    return TreeSelector(ReplayConfig(selector=kind, uniform_fraction=fraction), capacity)


def array(*slots):
    return np.array(slots, np.int64)


def make_tree(capacity, slots, known=None, kind="contextual"):
    """A tree with `slots` present and the priorities of the dictionary `known`."""
    tree = make(kind, capacity)
    tree.insert(np.array(slots, np.int64))
    if known:
        tree.set_priorities(array(*known), np.array(list(known.values()), np.float64))
    return tree


def draw(tree, rng, n):
    return tree.sample(rng, n)[0]


def uniform(tree, kind="contextual"):
    """The same slots and priorities, with uniform draws alone."""
    other = make(kind, tree.capacity, 1.0)
    other.restore(tree.state())
    return other


def all_slots(tree):
    return np.arange(tree.capacity)


def chi_square(drawn, probabilities):
    """p-value of the counts of `drawn` slots; every slot drawn must have a probability."""
    counts = np.bincount(drawn, minlength=len(probabilities))
    assert not counts[probabilities == 0].any()
    possible = probabilities > 0
    expected = probabilities[possible] * len(drawn)
    return scipy.stats.chisquare(counts[possible], expected * (len(drawn) / expected.sum())).pvalue


def probabilities_of(kind, present, priorities):
    """Of all slots, by the definition."""
    if kind == "contextual":
        return oracles.priority_tree_probabilities(present, priorities)
    masses = np.where(present, priorities, 0.0)
    return masses / masses.sum() if masses.any() else present / present.sum()


def assert_invariants(tree, kind, present, priorities):
    """Compares all results of a tree with slow definitions over (present, priorities)."""
    assert len(tree) == present.sum()
    known = present & ~np.isnan(priorities)
    state = tree.state()
    np.testing.assert_array_equal(state["present"], present)
    np.testing.assert_array_equal(state.get("known", present), known)
    np.testing.assert_array_equal(state["priorities"], np.where(known, priorities, 0))
    if not present.any():
        return
    expected = probabilities_of(kind, present, priorities)
    slots, rtol = np.flatnonzero(present), 1e-9 if kind == "contextual" else 1e-12
    np.testing.assert_allclose(tree.probabilities(slots), expected[slots], rtol=rtol)
    np.testing.assert_allclose(tree.probabilities(slots).sum(), 1.0, rtol=1e-12)
    rng = np.random.default_rng(0)
    assert (expected[draw(tree, rng, 50)] > 0).all()
    assert present[draw(uniform(tree, kind), rng, 50)].all()


def operations(*others):
    """Zero often, so that subtrees without mass occur; and `others`, so that rounding does."""
    priorities = st.one_of(st.just(0.0), st.floats(1e-2, 10.0), st.sampled_from(others))
    entries = st.lists(st.tuples(st.integers(0, 10**6), priorities), min_size=1, max_size=6)
    names = st.sampled_from(["insert", "insert", "set", "set", "remove"])
    return st.lists(st.tuples(names, entries), max_size=20)


def check_operations(kind, capacity, operations):
    tree, largest = make(kind, capacity), 1.0
    present, priorities = np.zeros(capacity, bool), np.full(capacity, UNKNOWN)
    for name, entries in operations:
        slots = np.array([slot % capacity for slot, _ in entries])
        values = np.array([value for _, value in entries])
        if name == "insert":
            tree.insert(slots)
            present[slots] = True
            priorities[slots] = UNKNOWN if kind == "contextual" else largest
        elif name == "remove":
            slots = np.unique(slots[present[slots]])
            tree.remove(slots)
            present[slots], priorities[slots] = False, UNKNOWN
        else:
            values, slots = values[present[slots]], slots[present[slots]]
            tree.set_priorities(slots, values)
            for slot, value in zip(slots, values, strict=True):  # the last of a repeated one counts
                priorities[slot], largest = value, max(largest, value)
        assert_invariants(tree, kind, present, priorities)


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(capacity=st.sampled_from(CAPACITIES), operations=operations(1e-11, 1e11))
def test_random_operations_agree_with_the_recursive_definition(capacity, operations):
    check_operations("contextual", capacity, operations)


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(
    capacity=st.sampled_from(BLOCK_CAPACITIES), operations=operations(5e-324, 1e-11, 1e11, 1e100)
)
def test_random_operations_are_those_of_two_arrays(capacity, operations):
    check_operations("proportional", capacity, operations)


@pytest.mark.parametrize("capacity", [64, 1500])
def test_small_batches_and_one_large_batch_build_the_same_tree(capacity):
    rng = np.random.default_rng(1)
    slots = rng.permutation(capacity)[: capacity // 2]
    priorities = rng.random(len(slots))
    whole = make_tree(capacity, slots, dict(zip(slots, priorities, strict=True)))
    pieces = make("contextual", capacity)
    for slot, priority in zip(slots, priorities, strict=True):
        pieces.insert(array(slot))
        pieces.set_priorities(array(slot), np.array([priority]))
    np.testing.assert_array_equal(whole.probabilities(slots), pieces.probabilities(slots))
    np.testing.assert_array_equal(
        *(draw(tree, np.random.default_rng(2), 500) for tree in (whole, pieces))
    )


def test_example_of_the_paper():
    # Left half: 0, 1, 2 unknown. Right half: 4 known and alone in its pair; 6 known, 7 not.
    # So 7 has the priority of 6, and 0, 1, 2 have 1/3 of that of 4 and 2/3 of that of 6.
    tree = make_tree(8, [0, 1, 2, 4, 6, 7], {4: 3.0, 6: 12.0})
    estimates = np.array([9.0, 9.0, 9.0, 3.0, 12.0, 12.0])
    np.testing.assert_allclose(
        tree.probabilities(array(0, 1, 2, 4, 6, 7)), estimates / estimates.sum(), rtol=1e-15
    )


@pytest.mark.parametrize("cell_length", [1, 2, 4, 16])
def test_one_known_priority_in_each_aligned_cell_is_the_partition_of_the_paper(cell_length):
    capacity = 32
    rng = np.random.default_rng(cell_length)
    cell_of = np.arange(capacity) // cell_length
    cells = capacity // cell_length
    known = np.arange(cells) * cell_length + rng.integers(cell_length, size=cells)
    priorities = np.full(capacity, UNKNOWN)
    priorities[known] = rng.random(cells)
    tree = make_tree(capacity, range(capacity), dict(zip(known, priorities[known], strict=True)))
    estimates = oracles.partition_estimates(cell_of, priorities, collection_of=np.arange(cells))
    np.testing.assert_allclose(
        tree.probabilities(np.arange(capacity)), estimates / estimates.sum(), rtol=1e-12
    )


def test_an_unknown_half_has_the_weighted_mean_of_the_partition_of_the_other_half():
    # Cells of the right half: {4} and {5 absent, 6, 7}; slots 0 to 3 look at both.
    priorities = np.array([5.0, UNKNOWN, 2.0])  # slots 4, 6, 7
    tree = make_tree(8, [0, 1, 2, 3, 4, 6, 7], {4: 5.0, 7: 2.0})
    inside = oracles.partition_estimates([0, 1, 1], priorities, collection_of=[0, 1])
    estimates = np.concatenate([np.full(4, inside.mean()), inside])
    np.testing.assert_allclose(
        tree.probabilities(array(0, 1, 2, 3, 4, 6, 7)), estimates / estimates.sum(), rtol=1e-12
    )


def test_zero_mass_is_never_drawn_beside_the_smallest_mass():
    tree = make_tree(100, range(100), dict.fromkeys(range(100), 0.0))
    tree.set_priorities(array(63), np.array([5e-324]))
    assert (draw(tree, np.random.default_rng(0), 1000) == 63).all()
    assert tree.probabilities(array(63, 62)).tolist() == [1.0, 0.0]


class ConstantGenerator:
    """Stands in for `np.random.Generator` at the ends of its range."""

    def __init__(self, uniform):
        self.uniform = uniform

    def random(self, shape):
        return np.full(shape, self.uniform)


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
@pytest.mark.parametrize("seed", range(20))
def test_the_ends_of_the_range_of_random_numbers_reach_slots_with_mass(uniform, seed):
    rng = np.random.default_rng(seed)
    slots = np.flatnonzero(rng.random(37) < 0.3)
    known = {slot: rng.integers(0, 2) * rng.random() for slot in slots[:-1:2]}
    tree = make_tree(37, slots, known)
    (drawn,) = draw(tree, ConstantGenerator(uniform), 1)
    assert tree.probabilities(array(drawn)) > 0


def test_the_largest_random_number_draws_the_last_slot_with_a_priority():
    largest = ConstantGenerator(np.nextafter(1.0, 0.0))
    for priority in (5e-324, 1e-300, 0.1, 1.0, 1e100):
        known = dict.fromkeys(range(30), priority) | dict.fromkeys(range(30, 37), 0.0)
        tree = make_tree(37, range(37), known, "proportional")
        np.testing.assert_array_equal(draw(tree, largest, 3), [29] * 3)


def test_largest_priorities_do_not_overflow():
    tree = make_tree(1000, range(1000), dict.fromkeys(range(0, 1000, 7), 1e100))
    np.testing.assert_allclose(tree.probabilities(all_slots(tree)), np.full(1000, 1e-3))


@pytest.mark.parametrize(
    ("kind", "capacity"),
    [
        *(("contextual", size) for size in CAPACITIES),
        ("proportional", 40),
        ("proportional", 20_000),
    ],
)
def test_frequencies_are_the_probabilities(kind, capacity):
    rng = np.random.default_rng(capacity)
    slots = rng.permutation(capacity)[: max(1, min(40, 4 * capacity // 5))]
    known = slots[::2] if kind == "contextual" else slots
    tree = make_tree(capacity, slots, {slot: rng.integers(0, 4) for slot in known}, kind)
    probabilities = np.zeros(capacity)
    probabilities[slots] = tree.probabilities(slots)
    drawn = draw(tree, rng, 40_000)
    assert drawn.dtype == np.int64
    assert drawn.shape == (40_000,)
    alike = np.isin(np.arange(capacity), slots) / len(slots)
    if len(slots) == 1:
        assert (drawn == slots[0]).all()
    else:
        assert chi_square(drawn, probabilities) > 1e-3
        assert chi_square(draw(uniform(tree, kind), rng, 40_000), alike) > 1e-3


def test_a_ring_that_overwrites_keeps_its_length_and_forgets_priorities():
    capacity = 6
    tree = make("contextual", capacity)
    present, priorities = np.zeros(capacity, bool), np.full(capacity, UNKNOWN)
    for step in range(20):
        slot = array(step % capacity)
        tree.insert(slot)
        present[slot], priorities[slot] = True, UNKNOWN
        assert_invariants(tree, "contextual", present, priorities)
        trained = draw(tree, np.random.default_rng(step), 1)
        tree.set_priorities(trained, np.array([step + 1.0]))
        priorities[trained] = step + 1.0
        assert_invariants(tree, "contextual", present, priorities)
    assert len(tree) == capacity


def test_the_last_of_a_repeated_slot_wins():
    tree = make_tree(4, range(4), dict.fromkeys(range(4), 1.0))
    tree.set_priorities(array(2, 1, 2, 2), np.array([9.0, 3.0, 8.0, 4.0]))
    np.testing.assert_allclose(tree.probabilities(array(0, 1, 2, 3)), np.array([1, 3, 4, 1]) / 9)


def test_empty_batches_do_nothing():
    tree = make_tree(40, [3], {3: 2.0})
    before, none = tree.state(), array()
    tree.insert(none)
    tree.remove(none)
    tree.set_priorities(none, np.zeros(0))
    assert tree.probabilities(none).shape == (0,)
    for name, value in tree.state().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint64])
def test_any_integer_dtype_is_taken(dtype):
    tree = make_tree(200, [3, 199])
    tree.set_priorities(np.array([3, 199], dtype), np.array([1, 3], np.float32))
    np.testing.assert_allclose(tree.probabilities(np.array([199], dtype)), [0.75])


@pytest.mark.parametrize(
    ("kind", "capacity"),
    [*(("contextual", size) for size in CAPACITIES), ("proportional", 37), ("proportional", 2_000)],
)
def test_state_restores_everything_that_follows(kind, capacity):
    known = {0: 2.0, (capacity - 1) // 2 * 2: 0.5}
    tree = make_tree(capacity, range(0, capacity, 2), known, kind)
    state = tree.state()
    other = make_tree(capacity, range(capacity), {capacity - 1: 7.0}, kind)
    other.restore(state)
    drawn = [draw(t, np.random.default_rng(5), 100) for t in (tree, other)]
    np.testing.assert_array_equal(*drawn)
    tree.remove(array(0))  # copies: the state that was taken stays, and so does the other tree
    assert len(other) == len(tree) + 1
    assert state["present"][0]
    assert state["priorities"][0] == (2.0 if capacity > 2 else 0.5)


def test_priorities_of_unknown_slots_are_not_restored():
    tree = make_tree(4, range(4), {1: 2.0})
    tree.restore({**tree.state(), "priorities": np.array([9.0, 2.0, 9.0, 9.0])})
    assert tree.state()["priorities"].tolist() == [0.0, 2.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["uniform", "proportional", "contextual"])
def test_state_is_refused_whole_or_taken_whole(kind):
    tree = make_tree(4, range(3), {1: 2.0}, kind)
    good = tree.state()
    wrong = [
        (make_tree(5, range(5), kind=kind).state(), r"'present'\] must be bool .*\(4,\), .*\(5,\)"),
        ({**good, "priorities": np.zeros(4, np.float32)}, r"must be float64 of .* got float32"),
        ({"present": good["present"]}, r"state\['(known|priorities)'\] must be"),
        ({**good, "priorities": np.array([0, np.nan, 0, 0])}, "got nan"),
    ]
    absent = {"priorities": np.array([0.0, 2.0, 0.0, 1.0])}
    if kind == "proportional":
        missing = {name: array for name, array in good.items() if name != "largest"}
        wrong.append((missing, r"'largest'\] must be float64"))
        wrong.append(({**good, "largest": np.asarray(np.nan)}, "got nan"))
    if kind == "contextual":
        absent = {"known": np.array([True, True, False, True])}
        wrong.append(({**good, "known": np.zeros(4, int)}, r"'known'\] must be bool .* got int64"))
    wrong.append(({**good, **absent}, "must be present, 3 is absent"))
    for state, message in wrong:
        with pytest.raises(ValueError, match=message):
            tree.restore(state)
        for key, value in tree.state().items():
            np.testing.assert_array_equal(value, good[key])


def test_the_benchmark_runs(capsys):
    """benchmarks/priority_tree.py"""
    module = load("priority_tree")
    module.main(["--keys", "1000", "--seconds", "0.001"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1000 keys")
    assert len(lines) == 1 + len(module.BATCHES) * 5
