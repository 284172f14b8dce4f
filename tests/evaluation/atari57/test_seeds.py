"""The interquartile mean of several seeds, and its bootstrap interval."""

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from retrax.evaluation.atari57 import interquartile_mean, iqm_interval


def generator():
    return np.random.default_rng(0)


@given(hnp.arrays(np.float64, st.tuples(*[st.integers(1, 9)] * 2), elements=st.floats(-5, 50)))
def test_mean_is_the_slow_one(scores):
    expected = oracles.quartiles_cut_mean(scores.flatten())
    assert interquartile_mean(scores) == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(
        interquartile_mean(np.stack([scores, 2 * scores])), [expected, 2 * expected], atol=1e-9
    )


def test_mean_by_hand():
    assert interquartile_mean(np.array([[0.0, 1.0, 100.0, 3.0]])) == 2.0


def test_interval_is_that_of_scipy():
    """scipy resamples each of several samples by itself: with games as samples, that is it."""
    scores = np.random.default_rng(1).normal(np.arange(8.0), 1.0, (6, 8))

    def statistic(*games, axis):
        return stats.trim_mean(np.concatenate(games, axis=axis), 0.25, axis=axis)

    expected = stats.bootstrap(
        tuple(scores.T),
        statistic,
        n_resamples=20_000,
        method="percentile",
        random_state=generator(),
    ).confidence_interval
    mean, low, high = iqm_interval(scores, generator(), resamples=20_000)
    assert mean == interquartile_mean(scores)
    np.testing.assert_allclose([low, high], expected, atol=0.02)


def test_every_resample_has_every_game():
    """Seeds that agree leave nothing to draw, however much the games differ."""
    scores = np.tile(np.arange(10.0) ** 2, (5, 1))
    mean, low, high = iqm_interval(scores, generator())
    assert low == high == mean


def test_contains_the_true_mean_about_as_often_as_it_says():
    """Of 8 normal seeds; a bootstrap of so few falls a little short of its confidence."""
    rng = generator()
    hits = 0
    for _ in range(200):
        scores = rng.normal(0.0, 1.0, (8, 12))  # the true interquartile mean is 0
        _, low, high = iqm_interval(scores, rng, confidence=0.9, resamples=300)
        hits += low <= 0.0 <= high
    assert 0.80 < hits / 200 < 0.96


def test_wider_with_more_confidence_and_the_same_for_the_same_generator():
    scores = np.random.default_rng(1).normal(size=(4, 10))
    narrow, wide = (iqm_interval(scores, generator(), confidence=c) for c in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high
    assert iqm_interval(scores, generator(), confidence=0.5) == narrow


def test_one_seed_has_no_interval():
    mean, low, high = iqm_interval(np.array([[0.0, 1.0, 100.0, 3.0]]), generator())
    assert mean == 2.0
    assert np.isnan([low, high]).all()


@pytest.mark.parametrize(
    ("scores", "kwargs", "message"),
    [
        (np.zeros(3), {}, r"must be finite, \[seeds, games\], got shape \(3,\)"),
        (np.full((2, 2), np.nan), {}, "must be finite"),
        (np.zeros((2, 2)), {"confidence": 1.0}, r"confidence must be in \(0, 1\), got 1.0"),
        (np.zeros((2, 2)), {"resamples": 0}, "resamples must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_refused(scores, kwargs, message):
    with pytest.raises(ValueError, match=message):
        iqm_interval(scores, generator(), **kwargs)
