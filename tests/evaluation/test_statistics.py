"""Statistics of episodes, tasks and seeds: definitions, and numbers of scipy and rliable."""

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from retrax.evaluation.statistics import (
    Interval,
    interquartile_mean,
    interval_of_episodes,
    mean_and_interval,
    mean_curve,
    moving_average,
    normalised,
    optimality_gap,
    probability_of_improvement,
    stratified_bootstrap,
)

# Scores by a rule, so that another program can make them too: 5 and 4 seeds of 4 tasks.
X = np.array([[((7 * i * i + 11 * j + 3 * i * j) % 23) / 20 for j in range(4)] for i in range(5)])
Y = np.array(
    [[((5 * i * i + 13 * j + 2 * i * j + 4) % 19) / 20 for j in range(4)] for i in range(4)]
)


def bootstrap(*scores, statistic=interquartile_mean, seed=0, **options):
    generator = np.random.default_rng(seed)
    return stratified_bootstrap(statistic, *scores, generator=generator, **options)


def test_interval_by_hand():
    """Of 1, 2, 3: s = 1, and the table says t = 4.303 for 2 degrees of freedom."""
    mean, low, high = mean_and_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    np.testing.assert_allclose(high - mean, 4.303 / np.sqrt(3.0), rtol=1e-4)
    np.testing.assert_allclose(mean - low, high - mean, rtol=1e-12)
    assert f"{Interval(12.5, 10.0, 15.0)}" == "12.5 (10 to 15)"
    assert f"{mean_and_interval([4.0])}" == "4"


@pytest.mark.parametrize(("size", "confidence"), [(2, 0.5), (5, 0.9), (40, 0.99)])
def test_agrees_with_scipy_stats(size, confidence):
    values = np.random.default_rng(size).normal(3.0, 2.0, size)
    expected = stats.t.interval(confidence, size - 1, loc=np.mean(values), scale=stats.sem(values))
    found = mean_and_interval(values, confidence)
    np.testing.assert_allclose(found, [np.mean(values), *expected], rtol=1e-9)


@pytest.mark.parametrize(
    ("values", "mean", "limit"),
    [
        ([4.0], 4.0, np.nan),
        ([1.0, np.nan, 2.0], np.nan, np.nan),
        ([1.0, np.inf, 2.0], np.inf, np.nan),
        ([1.0, -np.inf, 2.0], -np.inf, np.nan),
        ([np.inf, -np.inf], np.nan, np.nan),
        ([0.1] * 3, 0.1, 0.1),  # equal values have no width
        (np.full(7, -21.0, np.float32), -21.0, -21.0),
    ],
)
def test_intervals_of_special_values(values, mean, limit):
    np.testing.assert_equal(tuple(mean_and_interval(values)), (mean, limit, limit))


@pytest.mark.parametrize("size", [1, 2, 9])
def test_a_few_episodes_have_no_interval(size):
    """Student's for two episodes of catch is -12.7 to 12.7; every return is -1 or 1."""
    assert mean_and_interval([-1.0, 1.0]).high > 12
    returns = np.linspace(-1.0, 1.0, size)
    np.testing.assert_equal(tuple(interval_of_episodes(returns)), (np.mean(returns), *[np.nan] * 2))


def test_interval_of_episodes_ends_at_the_extreme_returns():
    returns = [1.0] * 9 + [-1.0]
    low = 0.8 - stats.t.ppf(0.975, 9) * stats.sem(returns)
    np.testing.assert_allclose(interval_of_episodes(returns), [0.8, low, 1.0], rtol=1e-12)
    assert mean_and_interval(returns).high > 1.2
    returns = np.negative(returns).astype(np.float32)
    np.testing.assert_allclose(interval_of_episodes(returns), [-0.8, -1.0, -low], rtol=1e-12)
    spread = np.arange(30.0)
    assert interval_of_episodes(spread) == mean_and_interval(spread)


@pytest.mark.parametrize(
    ("curves", "x", "y"),
    [
        ([([0, 2, 7], [1, -1, 5])], [0, 2, 7], [1, -1, 5]),
        # y = x at 0, 2, 4 and y = 10 at 1, 3: both exist from 1 to 3.
        ([([0, 2, 4], [0, 2, 4]), ([1, 3], [10, 10])], [1, 2, 3], [5.5, 6.0, 6.5]),
        ([([0, 1], [0, 1]), ([2, 3], [0, 1])], [], []),
    ],
)
def test_mean_curve_by_hand(curves, x, y):
    found = mean_curve([tuple(np.array(each, float) for each in curve) for curve in curves])
    np.testing.assert_array_equal(found, (x, y))


def test_moving_average_by_hand():
    values = [1.0, 3.0, 8.0, 4.0]
    for window, expected in ((1, values), (3, [1.0, 2.0, 4.0, 5.0]), (100, [1.0, 2.0, 4.0, 4.0])):
        np.testing.assert_array_equal(moving_average(values, window), expected)


@given(hnp.arrays(np.float64, st.tuples(*[st.integers(1, 9)] * 2), elements=st.floats(-5, 50)))
def test_interquartile_mean_is_the_slow_one(scores):
    expected = oracles.quartiles_cut_mean(scores.flatten())
    np.testing.assert_allclose(
        [interquartile_mean(scores), *interquartile_mean(np.stack([scores, 2 * scores]))],
        [expected, expected, 2 * expected],
        atol=1e-9,
    )


def test_by_hand_and_of_one_seed_without_an_interval():
    assert normalised(0.0, -200.0, 200.0) == 0.5
    scores = np.array([[0.0, 1.0, 100.0, 3.0]])
    np.testing.assert_equal(tuple(bootstrap(scores)), (2.0, np.nan, np.nan))
    # Every resample has every game: seeds that agree leave nothing to draw.
    mean, low, high = bootstrap(np.tile(np.arange(10.0) ** 2, (5, 1)))
    assert low == high == mean


def test_interval_is_that_of_scipy():
    """scipy resamples each of several samples by itself: with games as samples, that is it."""
    scores = np.random.default_rng(1).normal(np.arange(8.0), 1.0, (6, 8))

    def statistic(*games, axis):
        return stats.trim_mean(np.concatenate(games, axis=axis), 0.25, axis=axis)

    options = {"n_resamples": 20_000, "method": "percentile"}
    generator = np.random.default_rng(0)
    found = stats.bootstrap(tuple(scores.T), statistic, random_state=generator, **options)
    mean, low, high = bootstrap(scores, resamples=20_000)
    assert mean == interquartile_mean(scores)
    np.testing.assert_allclose([low, high], found.confidence_interval, atol=0.02)


def test_intervals_contain_the_true_mean_about_as_often_as_they_say():
    """A bootstrap of 8 seeds falls a little short of its confidence."""
    rng = np.random.default_rng(0)
    found = [mean_and_interval(rng.normal(0.0, 3.0, 4), 0.8) for _ in range(2000)]
    assert abs(np.mean([low <= 0.0 <= high for _, low, high in found]) - 0.8) < 0.03  # sd 0.009
    tables = [rng.normal(0.0, 1.0, (8, 12)) for _ in range(200)]
    found = [bootstrap(table, seed=i, resamples=300) for i, table in enumerate(tables)]
    assert found[0] == bootstrap(tables[0], seed=0, resamples=300)
    assert 0.87 < np.mean([low <= 0.0 <= high for _, low, high in found]) < 0.99


def test_equal_to_rliable():
    """Printed by rliable 1.2.0 for X and Y (its intervals with 20,000 repetitions)."""
    assert interquartile_mean(X) == pytest.approx(0.705)
    assert optimality_gap(X) == pytest.approx(0.34)
    assert probability_of_improvement(X, Y) == pytest.approx(0.6875)
    assert probability_of_improvement(Y, X) == pytest.approx(0.3125)
    for statistic, scores, limits in (
        (interquartile_mean, (X,), (0.535, 0.88)),
        (optimality_gap, (X,), (0.2175, 0.4575)),
        (probability_of_improvement, (X, Y), (0.53125, 0.8375)),
    ):
        found = bootstrap(*scores, statistic=statistic, resamples=20_000)
        assert found.mean == statistic(*scores)
        np.testing.assert_allclose([found.low, found.high], limits, atol=0.01)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mean_and_interval([]), "be a vector of at least one"),
        (lambda: mean_and_interval([[1.0, 2.0]]), "be a vector of at least one"),
        (lambda: mean_and_interval(X[0], 1.0), r"confidence must be in \(0, 1\), got 1"),
        (lambda: mean_and_interval(X[0], np.nan), r"confidence must be in \(0, 1\), got nan"),
        (lambda: mean_curve([]), "at least one curve"),
        (lambda: mean_curve([(np.array([]), np.array([]))]), "at least one curve"),
        (lambda: bootstrap(X[0]), r"scores must be finite, \[seeds, tasks\], got shape \(4,\)"),
        (lambda: bootstrap(X / 0), "scores must be finite"),
        (lambda: probability_of_improvement(X, X[:, :3]), "be of the same tasks, got 4 and 3"),
    ],
)
def test_refusals(call, sentence):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=sentence):
        call()
