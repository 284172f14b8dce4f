"""Statistics over tasks and seeds: definitions, and numbers that rliable printed."""

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from retrax.evaluation import comparison

# Scores by a rule, so that another program can make them too: 5 and 4 seeds of 4 tasks.
X = np.array([[((7 * i * i + 11 * j + 3 * i * j) % 23) / 20 for j in range(4)] for i in range(5)])
Y = np.array(
    [[((5 * i * i + 13 * j + 2 * i * j + 4) % 19) / 20 for j in range(4)] for i in range(4)]
)

tables = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.just(3)),
    elements=st.integers(-8, 8).map(lambda x: x / 4),
)


def test_equal_to_rliable():
    """Printed by rliable 1.2.0 for X and Y (its intervals with 20,000 repetitions)."""
    assert comparison.interquartile_mean(X) == pytest.approx(0.705)
    assert comparison.optimality_gap(X) == pytest.approx(0.34)
    assert comparison.optimality_gap(X, 0.5) == pytest.approx(0.0675)
    assert comparison.probability_of_improvement(X, Y) == pytest.approx(0.6875)
    assert comparison.probability_of_improvement(Y, X) == pytest.approx(0.3125)
    profile = comparison.performance_profile(X, [0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(profile, [0.95, 0.85, 0.65, 0.45, 0.15])


@pytest.mark.parametrize(
    ("statistic", "scores", "low", "high"),
    [
        (comparison.interquartile_mean, (X,), 0.535, 0.88),
        (comparison.optimality_gap, (X,), 0.2175, 0.4575),
        (comparison.probability_of_improvement, (X, Y), 0.53125, 0.8375),
    ],
)
def test_intervals_are_those_of_rliable(statistic, scores, low, high):
    rng = np.random.default_rng(0)
    found = comparison.stratified_bootstrap(statistic, *scores, rng=rng, repetitions=4000)
    assert found.value == statistic(*scores)
    np.testing.assert_allclose([found.low, found.high], [low, high], atol=0.015)


@given(tables)
def test_definitions(scores):
    flat = scores.flatten().tolist()
    assert comparison.interquartile_mean(scores) == pytest.approx(
        oracles.quartiles_cut_mean(flat), abs=1e-12
    )
    for target in (1.0, 0.3):
        assert comparison.optimality_gap(scores, target) == pytest.approx(
            oracles.gap(scores, target), abs=1e-12
        )
    profile = comparison.performance_profile(scores, [0.0, 0.5])
    assert profile.tolist() == [np.mean([x > t for x in flat]) for t in (0.0, 0.5)]


@given(tables, tables)
def test_improvement(scores, others):
    found = comparison.probability_of_improvement(scores, others)
    assert found == pytest.approx(oracles.improvement(scores, others))
    back = comparison.probability_of_improvement(others, scores)
    assert found + back == pytest.approx(1.0)


def test_seeds_are_drawn_within_their_task():
    """Tasks without spread stay as they are: nothing is drawn from another task."""
    scores = np.array([[0.0, 1.0, 5.0]] * 4)
    found = comparison.stratified_bootstrap(
        comparison.interquartile_mean, scores, rng=np.random.default_rng(0), repetitions=50
    )
    assert found.low == found.value == found.high


def test_seeds_are_drawn_with_replacement():
    """Of two seeds, 0 and 1, the mean is 0, a half, a half or 1, each as often."""
    scores, means = np.array([[0.0], [1.0]]), []

    def mean(drawn):
        means.append(float(drawn.mean()))
        return means[-1]

    comparison.stratified_bootstrap(mean, scores, rng=np.random.default_rng(0), repetitions=4000)
    values, counts = np.unique(means, return_counts=True)
    assert values.tolist() == [0.0, 0.5, 1.0]
    np.testing.assert_allclose(counts / len(means), [0.25, 0.5, 0.25], atol=0.03)


@pytest.mark.parametrize(
    ("scores", "options", "sentence"),
    [
        (np.zeros(3), {}, r"scores must be finite, \[seeds, tasks\], got shape \(3,\)"),
        (np.zeros((0, 3)), {}, r"got shape \(0, 3\)"),
        (np.array([[np.nan]]), {}, "scores must be finite"),
        (X, {"repetitions": 0}, "repetitions must be at least 1, got 0"),
        (X, {"confidence": 1.0}, r"confidence must be in \(0, 1\), got 1.0"),
    ],
)
def test_refusals(scores, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        comparison.stratified_bootstrap(
            comparison.optimality_gap, scores, rng=np.random.default_rng(0), **options
        )
    with pytest.raises(ValueError, match="must be of the same tasks, got 4 and 3"):
        comparison.probability_of_improvement(X, X[:, :3])


def test_an_estimate_in_words():
    assert str(comparison.Estimate(0.70512, 0.5, 0.88)) == "0.705 (0.5 to 0.88)"
    assert comparison.normalised(0.0, -200.0, 200.0) == 0.5
