"""Selectors against slow definitions: which slots are drawn, how often, and what is refused."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import scipy.stats

from retrax.replay import ReplayConfig, TreeSelector, importance_weights
from retrax.replay.selectors import has_tables, slots_per_environment

KINDS = ("uniform", "proportional", "contextual")
UNKNOWN = np.nan
CAPACITIES = (1, 2, 3, 5, 8, 13, 37)
# A tree of blocks has 1 to 3 nodes in each level; of four values for 5,000 slots, of five for more.
BLOCK_CAPACITIES = (1, 2, 5, 16, 17, 37, 5_000, 20_000)


def array(*slots):
    return np.array(slots, np.int64)


def make(kind, capacity=8, exponent=1.0, fraction=0.0):
    options = {"priority_exponent": exponent, "uniform_fraction": fraction}
    return TreeSelector(ReplayConfig(selector=kind, **options), capacity)


def make_tree(capacity, slots, known=None, kind="contextual", **options):
    """A selector with `slots` present and the priorities of the dictionary `known`."""
    tree = make(kind, capacity, **options)
    tree.insert(np.array(slots, np.int64))
    if known:
        tree.set_priorities(array(*known), np.array(list(known.values()), np.float64))
    return tree


def draw(tree, rng, n):
    return tree.sample(rng, n)[0]


def probabilities_of(kind, present, priorities):
    """Of all slots, by the definition."""
    if kind == "contextual":
        return oracles.priority_tree_probabilities(present, priorities)
    masses = np.where(present, priorities, 0.0)
    return masses / masses.sum() if masses.any() else present / present.sum()


def assert_same(selector, other):
    for key, value in other.state().items():
        np.testing.assert_array_equal(selector.state()[key], value)
    slots = np.flatnonzero(other.state()["present"])
    np.testing.assert_array_equal(selector.probabilities(slots), other.probabilities(slots))


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
    rng, uniform = np.random.default_rng(0), make(kind, tree.capacity, fraction=1.0)
    uniform.restore(state)
    assert (expected[draw(tree, rng, 50)] > 0).all()
    assert present[draw(uniform, rng, 50)].all()


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


@pytest.mark.parametrize(
    ("kind", "capacity", "fraction"),
    [
        *((kind, 11, fraction) for kind in KINDS for fraction in (0.0, 0.3, 1.0)),
        *(("contextual", size, 0.0) for size in CAPACITIES),
        ("proportional", 40, 0.0),
        ("proportional", 20_000, 0.0),
    ],
)
def test_frequencies_are_the_mixed_probabilities(kind, capacity, fraction):
    rng = np.random.default_rng(capacity)
    slots = rng.permutation(capacity)[: max(1, min(40, 4 * capacity // 5))]
    known = slots[::2] if kind == "contextual" else slots
    given = {slot: rng.integers(0, 4) for slot in known}
    tree = make_tree(capacity, slots, given, kind, fraction=fraction)
    present, priorities = np.zeros(capacity, bool), np.full(capacity, UNKNOWN)
    present[slots] = True
    priorities[[*given]] = [*given.values()] if kind != "uniform" else 1.0
    wanted = fraction * present / len(slots)
    wanted += (1 - fraction) * probabilities_of(kind, present, priorities)
    drawn, reported = tree.sample(rng, 40_000)
    assert (drawn.dtype, reported.dtype) == (np.int64, np.float64)
    np.testing.assert_allclose(reported, wanted[drawn], rtol=1e-12)
    counts, possible = np.bincount(drawn, minlength=capacity), wanted > 0
    assert not counts[~possible].any()
    if possible.sum() > 1:
        expected = 40_000 * wanted[possible] / wanted.sum()
        assert scipy.stats.chisquare(counts[possible], expected).pvalue > 1e-3


def test_proportional_gives_new_slots_the_largest_priority_so_far():
    selector = make_tree(8, (0, 1), {1: 0.5}, "proportional")  # 1 stays the largest
    selector.insert(array(2))
    selector.set_priorities(array(0), np.array([3.0]))
    selector.insert(array(3))
    selector.set_priorities(array(0), np.array([0.5]))  # the largest was 3, and stays
    selector.insert(array(1))
    expected = np.array([0.5, 3.0, 1.0, 3.0])
    np.testing.assert_allclose(
        selector.probabilities(np.arange(4)), expected / expected.sum(), rtol=1e-12
    )


def test_proportional_applies_the_exponent_to_the_largest_priority_once():
    selector = make_tree(8, [0], {0: 3.0}, "proportional", exponent=2.0)
    selector.insert(array(1))
    np.testing.assert_array_equal(selector.probabilities(array(0, 1)), [0.5, 0.5])


@pytest.mark.parametrize("kind", ["proportional", "contextual"])
def test_exponent_zero_makes_every_priority_one(kind):
    selector = make_tree(8, range(3), {0: 0.0, 1: 50.0}, kind, exponent=0.0)
    np.testing.assert_allclose(selector.probabilities(np.arange(3)), np.full(3, 1 / 3))


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
    assert_same(whole, pieces)
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


def test_zero_mass_is_never_drawn_beside_the_smallest_mass():
    tree = make_tree(100, range(100), {**dict.fromkeys(range(100), 0.0), 63: 5e-324})
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
    np.testing.assert_allclose(tree.probabilities(np.arange(1000)), np.full(1000, 1e-3))


@pytest.mark.parametrize(
    ("kind", "capacity"),
    [
        *((kind, 8) for kind in KINDS),
        *(("contextual", size) for size in CAPACITIES),
        ("proportional", 2_000),
    ],
)
def test_state_restores_everything_that_follows(kind, capacity):
    known = {0: 7.0, (capacity - 1) // 2 * 2: 0.5}
    tree = make_tree(capacity, range(0, capacity, 2), known, kind, fraction=0.2)
    other = make_tree(capacity, range(capacity), {capacity - 1: 9.0}, kind, fraction=0.2)
    state = tree.state()
    other.restore(state)
    for each in (tree, other):
        each.insert(array(capacity - 1))
        each.set_priorities(array(0), np.array([0.1]))
    assert_same(tree, other)
    drawn = [draw(t, np.random.default_rng(n), 100) for t, n in ((tree, 3), (other, 3), (tree, 4))]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert capacity < 3 or (drawn[0] != drawn[2]).any(), "the seed decides"
    tree.remove(array(0))  # copies: the state that was taken stays, and so does the other tree
    assert len(other) == len(tree) + 1
    assert state["present"][0]
    assert kind == "uniform" or state["priorities"][0] == (7.0 if capacity > 2 else 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_state_is_refused_whole_or_taken_whole(kind):
    tree, same = (make_tree(4, range(3), {1: 2.0}, kind) for _ in range(2))
    good = tree.state()
    wrong = [
        (make_tree(5, range(5), kind=kind).state(), r"'present'\] must be bool .*\(4,\), .*\(5,\)"),
        ({**good, "priorities": np.zeros(4, np.float32)}, r"must be float64 of .* got float32"),
        ({"present": good["present"]}, r"state\['(known|priorities)'\] must be"),
    ]
    for state, message in wrong:
        with pytest.raises(ValueError, match=message):
            tree.restore(state)
        assert_same(tree, same)


REJECTIONS = {
    "remove absent": (lambda t: t.remove(array(1, 8)), r"be present \(inserted\), but 8 is not"),
    "set absent": (lambda t: t.set_priorities(array(1, 9), np.ones(2)), "present.*9 is not"),
    "ask absent": (lambda t: t.probabilities(array(8)), "present.*8 is not"),
    "too much": (lambda t: t.set_priorities(array(1), np.array([1e101])), r"at most 1e.*1e\+101"),
    "shape": (lambda t: t.set_priorities(array(1, 2), np.ones(3)), r"shape \(2,\), got \(3,\)"),
}


@pytest.mark.parametrize("kind", ["proportional", "contextual"])
@pytest.mark.parametrize("name", REJECTIONS)
def test_refused_calls_change_nothing(kind, name):
    act, message = REJECTIONS[name]
    selector, other = (make_tree(10, range(8), {0: 1.0, 5: 3.0}, kind) for _ in range(2))
    with pytest.raises(ValueError, match=message):
        act(selector)
    assert_same(selector, other)
    for each in (selector, other):  # the refused call left nothing behind
        each.insert(array(0))
    assert_same(selector, other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exponent", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize("kept", [None, np.array([True, False])])
def test_wrong_priorities_are_refused_before_the_exponent_hides_them(kind, exponent, wrong, kept):
    selector, other = (make_tree(8, range(3), kind=kind, exponent=exponent) for _ in range(2))
    with pytest.raises(ValueError, match=f"priorities must be finite.*got {wrong}"):
        selector.set_priorities(array(0, 1), np.array([5.0, wrong]), kept)
    assert_same(selector, other)


@pytest.mark.parametrize("kind", ["proportional", "contextual"])
def test_a_power_beyond_the_range_is_refused(kind):
    selector, other = (make_tree(8, [0], {0: 1e10}, kind, exponent=10.0) for _ in range(2))
    assert selector.state()["priorities"][0] == pytest.approx(1e100)
    selector.restore(selector.state())
    with pytest.raises(ValueError, match=r"at most 1e\+10, got 1e\+60"):
        selector.set_priorities(array(0), np.array([1e60]))
    assert_same(selector, other)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_selector_has_nothing_to_draw_or_remove(kind):
    selector = make(kind)
    with pytest.raises(ValueError, match="insert slots first"):
        selector.sample(np.random.default_rng(0), 1)
    with pytest.raises(ValueError, match="0 is not"):
        selector.remove(array(0))
    assert not selector.state()["present"].any()


@pytest.mark.parametrize(
    ("num_starts", "contextual"), [(1, 2), (2, 4), (3, 8), (4, 8), (5, 16), (8, 16), (9, 32)]
)
def test_only_contextual_selection_takes_more_slots_than_sequences(num_starts, contextual):
    found = [slots_per_environment(kind, num_starts) for kind in KINDS]
    assert found == [num_starts, num_starts, contextual]


def test_importance_weights_by_hand():
    probabilities = np.array([0.5, 0.25, 0.125])
    np.testing.assert_array_equal(importance_weights(probabilities, 4, 1.0), [0.5, 1.0, 2.0])
    np.testing.assert_allclose(importance_weights(probabilities, 4, 0.5), np.sqrt([0.5, 1, 2]))
    np.testing.assert_array_equal(importance_weights(probabilities, 4, 0.0), np.ones(3))


@pytest.mark.parametrize("wrong", [0.0, np.nan])
def test_importance_weights_refuse_slots_that_are_never_drawn(wrong):
    message = f"probabilities must be above 0 and finite, got {wrong}"
    with pytest.raises(ValueError, match=message):
        importance_weights(np.array([0.5, wrong]), 4, 1.0)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"selector": "contextual"}, False),
        ({"selector": "proportional"}, True),
        ({"selector": "uniform"}, True),
        ({"selector": "uniform", "pace": "rounds"}, False),
        ({"selector": "uniform", "pace": "rounds", "on_policy": True}, False),
    ],
)
def test_there_are_tables_for_the_selectors_and_the_pace_of_reverb(fields, wanted):
    assert has_tables(ReplayConfig(capacity=100, min_rows=1, **fields)) == wanted
