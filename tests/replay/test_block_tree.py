"""The tree of known priorities against plain arrays."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import scipy.stats

from retrax.replay.block_tree import BlockTree

# 1 to 3 nodes in each level; 5,000 slots have nodes of four, 20,000 of five.
CAPACITIES = (1, 2, 5, 16, 17, 37, 5_000, 20_000)
PRIORITIES = st.one_of(
    st.just(0.0), st.floats(1e-2, 10.0), st.sampled_from([5e-324, 1e-11, 1e11, 1e100])
)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "set", "set", "remove"]),
        st.lists(st.tuples(st.integers(0, 10**6), PRIORITIES), min_size=1, max_size=6),
    ),
    max_size=20,
)


def array(*slots):
    return np.array(slots, np.int64)


def draw(tree, rng, n):
    return tree.sample(rng, n)[0]


def uniform(tree):
    """The same slots and priorities, with uniform draws alone."""
    other = BlockTree(tree.capacity, rule="largest", uniform_fraction=1.0)
    other.restore(tree.state())
    return other


def assert_is(tree, present, priorities):
    """Compares a tree with the arrays that it stands for."""
    assert len(tree) == present.sum()
    state = tree.state()
    np.testing.assert_array_equal(state["present"], present)
    np.testing.assert_array_equal(state["priorities"], priorities)
    slots = np.flatnonzero(present)
    if not slots.size:
        return
    total = priorities.sum()
    expected = priorities / total if total else present / present.sum()
    np.testing.assert_allclose(tree.probabilities(slots), expected[slots], rtol=1e-12)
    rng = np.random.default_rng(0)
    allowed = priorities > 0 if total else present
    assert allowed[draw(tree, rng, 50)].all()
    assert present[draw(uniform(tree), rng, 50)].all()


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(capacity=st.sampled_from(CAPACITIES), operations=OPERATIONS)
def test_random_operations_are_those_of_two_arrays(capacity, operations):
    tree, largest = BlockTree(capacity, rule="largest"), 1.0
    present, priorities = np.zeros(capacity, bool), np.zeros(capacity)
    for name, entries in operations:
        slots = np.array([slot % capacity for slot, _ in entries])
        values = np.array([value for _, value in entries])
        if name == "insert":
            tree.insert(slots)
            present[slots], priorities[slots] = True, largest
        elif name == "remove":
            slots = np.unique(slots[present[slots]])
            tree.remove(slots)
            present[slots], priorities[slots] = False, 0.0
        else:
            values, slots = values[present[slots]], slots[present[slots]]
            tree.set_priorities(slots, values)
            for slot, value in zip(slots, values, strict=True):  # the last of a repeated one counts
                priorities[slot], largest = value, max(largest, value)
        assert_is(tree, present, priorities)


def test_known_priorities_have_the_probabilities_of_the_contextual_tree():
    rng = np.random.default_rng(0)
    present = rng.random(100) < 0.7
    priorities = np.where(rng.random(100) < 0.2, 0.0, rng.random(100))
    tree, slots = BlockTree(100, rule="largest"), np.flatnonzero(present)
    tree.insert(slots)
    tree.set_priorities(slots, priorities[slots])
    expected = oracles.priority_tree_probabilities(present, priorities)
    np.testing.assert_allclose(tree.probabilities(slots), expected[slots], rtol=1e-12)


@pytest.mark.parametrize("capacity", [40, 20_000])
@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_draws_have_the_probabilities_that_are_told(capacity, fraction):
    rng = np.random.default_rng(capacity)
    slots = rng.permutation(capacity)[:40]
    priorities = np.where(np.arange(40) % 5 == 0, 0.0, rng.random(40) + 0.1)
    tree = BlockTree(capacity, rule="largest", uniform_fraction=fraction)
    tree.insert(slots)
    tree.set_priorities(slots, priorities)
    drawn = np.bincount(draw(tree, rng, 40_000), minlength=capacity)
    probabilities = tree.probabilities(slots)
    possible = probabilities > 0
    assert drawn.sum() == drawn[slots[possible]].sum()
    expected = 40_000 * probabilities[possible]
    assert scipy.stats.chisquare(drawn[slots[possible]], expected).pvalue > 1e-3


def test_the_largest_random_number_draws_the_last_slot_with_a_priority():
    class Largest:
        def random(self, shape):
            return np.full(shape, np.nextafter(1.0, 0.0))

    for priority in (5e-324, 1e-300, 0.1, 1.0, 1e100):
        tree = BlockTree(37, rule="largest")
        tree.insert(np.arange(37))
        tree.set_priorities(np.arange(37), np.where(np.arange(37) < 30, priority, 0.0))
        np.testing.assert_array_equal(draw(tree, Largest(), 3), [29] * 3)


def test_a_restored_tree_draws_the_same():
    rng = np.random.default_rng(0)
    tree, other = (BlockTree(2_000, rule="largest") for _ in range(2))
    tree.insert(np.arange(1_500))
    tree.set_priorities(np.arange(1_500), rng.random(1_500))
    other.insert(array(1_999))
    other.restore(tree.state())
    draws = [draw(each, np.random.default_rng(1), 500) for each in (tree, other)]
    np.testing.assert_array_equal(*draws)
    assert len(other) == 1_500


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"present": np.ones(3, bool)}, "'priorities'.* must be float64 of shape"),
        ({"present": np.ones(2, bool), "priorities": np.ones(3)}, "'present'.* must be bool"),
        ({"present": np.zeros(3, bool), "priorities": np.ones(3)}, "must be present, 0 is absent"),
        ({"present": np.ones(3, bool), "priorities": np.full(3, np.nan)}, "must be finite"),
    ],
)
def test_foreign_states_are_refused(state, message):
    tree = BlockTree(3, rule="one")
    tree.insert(array(1))
    with pytest.raises(ValueError, match=message):
        tree.restore(state)
    assert tree.state()["present"].tolist() == [False, True, False]
