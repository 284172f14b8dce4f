import hypothesis
import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import scipy.stats

from retrax.replay import ReplayConfig, TreeSelector, importance_weights
from retrax.replay.selectors import has_tables, slots_per_environment

KINDS = ("uniform", "proportional", "contextual")


def array(*slots):
    return np.array(slots, np.int64)


def make(kind, capacity=8, exponent=1.0, fraction=0.0):
    options = {"priority_exponent": exponent, "uniform_fraction": fraction}
    return TreeSelector(ReplayConfig(selector=kind, **options), capacity)


def probabilities_of(selector, slots):
    """Probabilities that `sample` reports, 0 for slots that are never drawn."""
    found = dict(zip(*selector.sample(np.random.default_rng(0), 20_000), strict=True))
    return np.array([found.get(slot, 0.0) for slot in slots])


def test_uniform_is_uniform_whatever_the_priorities():
    selector = make("uniform")
    selector.insert(np.arange(5))
    selector.set_priorities(array(0, 1), np.array([100.0, 0.0]))
    np.testing.assert_array_equal(probabilities_of(selector, np.arange(5)), np.full(5, 0.2))
    assert set(selector.sample(np.random.default_rng(0), 200)[0]) == set(range(5))


def test_proportional_gives_new_slots_the_largest_priority_so_far():
    selector = make("proportional")
    selector.insert(array(0, 1))  # 1, 1
    selector.set_priorities(array(1), np.array([0.5]))  # 1 stays the largest
    selector.insert(array(2))
    selector.set_priorities(array(0), np.array([3.0]))
    selector.insert(array(3))
    selector.set_priorities(array(0), np.array([0.5]))  # the largest was 3, and stays
    selector.insert(array(1))
    expected = np.array([0.5, 3.0, 1.0, 3.0])
    np.testing.assert_allclose(
        probabilities_of(selector, np.arange(4)), expected / expected.sum(), rtol=1e-12
    )


def test_proportional_applies_the_exponent_to_the_largest_priority_once():
    selector = make("proportional", exponent=2.0)
    selector.insert(array(0))
    selector.set_priorities(array(0), np.array([3.0]))
    selector.insert(array(1))
    np.testing.assert_array_equal(probabilities_of(selector, array(0, 1)), [0.5, 0.5])


def test_contextual_estimates_new_slots_from_their_neighbourhood():
    selector = make("contextual", exponent=0.5)
    selector.insert(np.arange(8))
    selector.set_priorities(array(0, 6), np.array([4.0, 25.0]))
    roots = np.full(8, np.nan)
    roots[[0, 6]] = 2.0, 5.0
    expected = oracles.priority_tree_probabilities(np.ones(8, bool), roots)
    np.testing.assert_allclose(probabilities_of(selector, np.arange(8)), expected, rtol=1e-12)


def test_contextual_equals_proportional_once_everything_is_known():
    priorities = np.random.default_rng(0).random(8)
    selectors = [make(kind, exponent=0.6, fraction=0.1) for kind in ("proportional", "contextual")]
    for selector in selectors:
        selector.insert(np.arange(8))
        selector.set_priorities(np.arange(8), priorities)
    powers = priorities**0.6
    expected = 0.1 / 8 + 0.9 * powers / powers.sum()
    for selector in selectors:
        np.testing.assert_allclose(probabilities_of(selector, np.arange(8)), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("num_starts", "contextual"), [(1, 2), (2, 4), (3, 8), (4, 8), (5, 16), (8, 16), (9, 32)]
)
def test_only_contextual_selection_takes_more_slots_than_sequences(num_starts, contextual):
    found = [slots_per_environment(kind, num_starts) for kind in KINDS]
    assert found == [num_starts, num_starts, contextual]


@hypothesis.settings(max_examples=100, deadline=None, derandomize=True)
@hypothesis.given(num_starts=st.integers(1, 40), newest=st.integers(0, 500))
def test_subtrees_below_that_of_a_ring_hold_contiguous_runs_of_time(num_starts, newest):
    length = slots_per_environment("contextual", num_starts)
    ages = np.arange(num_starts)
    slots = (newest - ages) % length
    size = 1
    while size < length:
        for subtree in np.unique(slots // size):
            run = ages[slots // size == subtree]
            np.testing.assert_array_equal(run, np.arange(run[0], run[-1] + 1))
        size *= 2
    assert size == length, "the ring is a subtree"


@pytest.mark.parametrize("kind", ["proportional", "contextual"])
def test_exponent_zero_makes_every_priority_one(kind):
    selector = make(kind, exponent=0.0)
    selector.insert(np.arange(3))
    selector.set_priorities(array(0, 1), np.array([0.0, 50.0]))
    np.testing.assert_allclose(probabilities_of(selector, np.arange(3)), np.full(3, 1 / 3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_frequencies_are_the_mixed_probabilities(kind, fraction):
    selector = make(kind, capacity=11, fraction=fraction)
    selector.insert(np.arange(10))
    selector.remove(array(4))
    selector.set_priorities(array(0, 1, 2, 9), np.array([5.0, 1.0, 0.0, 2.0]))
    slots = np.delete(np.arange(10), 4)
    probabilities = probabilities_of(selector, slots)
    np.testing.assert_allclose(probabilities.sum(), 1.0, rtol=1e-12)
    assert (probabilities >= fraction / 9).all()
    drawn, reported = selector.sample(np.random.default_rng(7), 20_000)
    assert (drawn.dtype, reported.dtype) == (np.int64, np.float64)
    counts = np.bincount(drawn, minlength=11)
    assert counts[[4, 10]].sum() == 0
    possible = probabilities > 0
    assert counts[slots][~possible].sum() == 0
    expected = 20_000 * probabilities[possible]
    assert scipy.stats.chisquare(counts[slots][possible], expected).pvalue > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_a_batch_are_exchangeable(kind):
    # Each draw chooses for itself whether it is uniform: the first is no different from the last.
    selector = make(kind, fraction=0.5)
    selector.insert(np.arange(4))
    selector.set_priorities(np.arange(4), np.array([0.0, 0.0, 0.0, 1.0]))
    rng = np.random.default_rng(0)
    batches = np.stack([selector.sample(rng, 2)[0] for _ in range(4000)])
    share = (batches == 3).mean(axis=0)
    expected = 0.25 if kind == "uniform" else 0.5 / 4 + 0.5
    np.testing.assert_allclose(share, expected, atol=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_draws_the_same(kind):
    selector = make(kind, fraction=0.5)
    selector.insert(np.arange(8))
    first, again, other = (selector.sample(np.random.default_rng(n), 40)[0] for n in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("kind", KINDS)
def test_state_restores_everything_that_follows(kind):
    selector, other = make(kind, fraction=0.2), make(kind, fraction=0.2)
    selector.insert(np.arange(6))
    selector.set_priorities(array(2, 3), np.array([0.5, 7.0]))
    other.insert(array(7))
    other.restore(selector.state())
    np.testing.assert_array_equal(other.state()["present"], np.arange(8) < 6)
    for each in (selector, other):
        each.insert(array(6))
        each.set_priorities(array(3), np.array([0.1]))
        each.insert(array(7, 0))
    np.testing.assert_array_equal(
        probabilities_of(selector, np.arange(8)), probabilities_of(other, np.arange(8))
    )
    draws = [each.sample(np.random.default_rng(0), 50) for each in (selector, other)]
    np.testing.assert_array_equal(*draws)


REJECTIONS = {
    "float slots": (lambda t: t.insert(np.array([1.0])), r"integers of shape \[n\], got float64"),
    "bool slots": (lambda t: t.insert(np.array([True])), r"integers of shape \[n\], got bool"),
    "scalar": (lambda t: t.insert(np.int64(3)), r"got int64 of shape \[\]"),
    "matrix": (lambda t: t.insert(np.zeros((2, 1), int)), r"got int64 of shape \[2, 1\]"),
    "too large": (lambda t: t.insert(array(1, 10, 11)), "slots must be from 0 to 9, got 10"),
    "negative": (lambda t: t.insert(array(-1)), "slots must be from 0 to 9, got -1"),
    "huge": (lambda t: t.insert(np.array([2**64 - 1], np.uint64)), "from 0 to 9, got 18446744"),
    "remove absent": (lambda t: t.remove(array(1, 8)), r"must be present \(inserted\), 8 is not"),
    "remove twice": (lambda t: t.remove(array(1, 2, 1)), "must be distinct, got 1 twice"),
    "set absent": (lambda t: t.set_priorities(array(1, 9), np.ones(2)), "present.*9 is not"),
    "ask absent": (lambda t: t.probabilities(array(8)), "present.*8 is not"),
    "too much": (lambda t: t.set_priorities(array(1), np.array([1e101])), r"at most 1e.*1e\+101"),
    "shape": (lambda t: t.set_priorities(array(1, 2), np.ones(3)), r"shape \(2,\), got \(3,\)"),
    "no draw": (lambda t: t.sample(np.random.default_rng(0), 0), "n must be at least 1.*got 0"),
}


def assert_same(selector, other):
    for key, value in other.state().items():
        np.testing.assert_array_equal(selector.state()[key], value)
    slots = np.flatnonzero(other.state()["present"])
    np.testing.assert_array_equal(selector.probabilities(slots), other.probabilities(slots))


@pytest.mark.parametrize("kind", ["proportional", "contextual"])
@pytest.mark.parametrize("name", REJECTIONS)
def test_refused_calls_change_nothing(kind, name):
    act, message = REJECTIONS[name]
    selector, other = make(kind, capacity=10), make(kind, capacity=10)
    for each in (selector, other):
        each.insert(np.arange(8))
        each.set_priorities(array(0, 5), np.array([1.0, 3.0]))
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
    selector, other = make(kind, exponent=exponent), make(kind, exponent=exponent)
    for each in (selector, other):
        each.insert(np.arange(3))
    with pytest.raises(ValueError, match=f"priorities must be finite.*got {wrong}"):
        selector.set_priorities(array(0, 1), np.array([5.0, wrong]), kept)
    assert_same(selector, other)


@pytest.mark.parametrize("kind", ["proportional", "contextual"])
def test_a_power_beyond_the_range_is_refused(kind):
    selector = make(kind, exponent=10.0)
    selector.insert(array(0))
    selector.set_priorities(array(0), np.array([1e10]))
    assert selector.state()["priorities"][0] == pytest.approx(1e100)
    selector.restore(selector.state())
    before = selector.state()
    with pytest.raises(ValueError, match=r"at most 1e\+10, got 1e\+60"):
        selector.set_priorities(array(0), np.array([1e60]))
    for key, value in selector.state().items():
        np.testing.assert_array_equal(value, before[key])


@pytest.mark.parametrize("kind", ["proportional", "contextual"])
def test_priorities_are_set_where_they_are_kept(kind):
    """The largest one that was set is that of new slots: it is one of those."""
    selector, other = make(kind), make(kind)
    for each in (selector, other):
        each.insert(np.arange(3))
    kept = np.array([False, True, True, False])
    selector.set_priorities(array(7, 1, 2, 0), np.array([9.0, 3.0, 0.5, 8.0]), kept)
    other.set_priorities(array(1, 2), np.array([3.0, 0.5]))
    assert_same(selector, other)
    for each in (selector, other):
        each.insert(array(4))
    assert_same(selector, other)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_selector_has_nothing_to_draw_or_remove(kind):
    selector = make(kind)
    with pytest.raises(ValueError, match="insert slots first"):
        selector.sample(np.random.default_rng(0), 1)
    with pytest.raises(ValueError, match="0 is not"):
        selector.remove(array(0))
    assert not selector.state()["present"].any()


def test_importance_weights_make_the_mean_unbiased():
    values = np.random.default_rng(0).normal(size=8)
    selector = make("contextual", fraction=0.1)
    selector.insert(np.arange(8))
    selector.set_priorities(array(1, 2, 5), np.array([0.0, 4.0, 1.0]))
    probabilities = probabilities_of(selector, np.arange(8))
    assert (probabilities > 0).all(), "every slot was drawn"
    weights = importance_weights(probabilities, 8, 1.0)
    np.testing.assert_allclose((probabilities * weights * values).sum(), values.mean(), rtol=1e-12)


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
