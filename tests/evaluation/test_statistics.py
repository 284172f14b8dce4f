"""Means, intervals and mean curves."""

import numpy as np
import pytest
from scipy import stats

from retrax.evaluation.statistics import (
    Interval,
    interval_of_episodes,
    mean_and_interval,
    mean_curve,
    moving_average,
)


def test_interval_by_hand():
    """Of 1, 2, 3: s = 1, and the table says t = 4.303 for 2 degrees of freedom."""
    mean, low, high = mean_and_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    np.testing.assert_allclose(high - mean, 4.303 / np.sqrt(3.0), rtol=1e-4)
    np.testing.assert_allclose(mean - low, high - mean, rtol=1e-12)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("size", [2, 5, 40])
def test_agrees_with_scipy_stats(size, confidence):
    values = np.random.default_rng(size).normal(3.0, 2.0, size)
    mean, low, high = mean_and_interval(values, confidence)
    expected = stats.t.interval(confidence, size - 1, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose([mean, low, high], [np.mean(values), *expected], rtol=1e-9)


def test_contains_the_true_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    intervals = [mean_and_interval(rng.normal(5.0, 3.0, 4), 0.8) for _ in range(2000)]
    covered = np.mean([low <= 5.0 <= high for _, low, high in intervals])
    assert abs(covered - 0.8) < 0.03  # its standard deviation is 0.009


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
    mean, low, high = interval_of_episodes(np.linspace(-1.0, 1.0, size))
    assert mean == np.mean(np.linspace(-1.0, 1.0, size))
    assert np.isnan([low, high]).all()


def test_interval_of_episodes_ends_at_the_extreme_returns():
    returns = [1.0] * 9 + [-1.0]
    sem = stats.sem(returns)
    low = 0.8 - stats.t.ppf(0.975, 9) * sem
    np.testing.assert_allclose(interval_of_episodes(returns), [0.8, low, 1.0], rtol=1e-12)
    assert mean_and_interval(returns).high > 1.2
    high = -low
    returns = np.negative(returns).astype(np.float32)
    np.testing.assert_allclose(interval_of_episodes(returns), [-0.8, -1.0, high], rtol=1e-12)
    spread = np.arange(30.0)
    assert interval_of_episodes(spread) == mean_and_interval(spread)


def test_reads_well():
    assert f"{Interval(12.5, 10.0, 15.0)}" == "12.5 (10 to 15)"
    assert f"{mean_and_interval([4.0])}" == "4"


@pytest.mark.parametrize(
    ("values", "confidence", "sentence"),
    [
        *((values, 0.9, "be a vector of at least one") for values in ([], [[1.0, 2.0]], 3.0)),
        *(([1.0, 2.0], x, r"confidence must be in \(0, 1\)") for x in (0.0, 1.0, 95.0, np.nan)),
    ],
)
def test_refusals(values, confidence, sentence):
    with pytest.raises(ValueError, match=sentence):
        mean_and_interval(values, confidence)


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


@pytest.mark.parametrize("curves", [[], [(np.array([]), np.array([]))]])
def test_mean_curve_rejects_nothing(curves):
    with pytest.raises(ValueError, match="at least one curve"):
        mean_curve(curves)


def test_moving_average_by_hand():
    values = [1.0, 3.0, 8.0, 4.0]
    for window, expected in ((1, values), (3, [1.0, 2.0, 4.0, 5.0]), (100, [1.0, 2.0, 4.0, 4.0])):
        np.testing.assert_array_equal(moving_average(values, window), expected)
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        moving_average([1.0], 0)
