"""Statistics over tasks and seeds: definitions, and numbers that rliable printed."""

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

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


def iqm_interval(scores, generator, **options):
    return comparison.stratified_bootstrap(
        comparison.interquartile_mean, scores, generator=generator, **options
    )


def generator():
    return np.random.default_rng(0)


@given(hnp.arrays(np.float64, st.tuples(*[st.integers(1, 9)] * 2), elements=st.floats(-5, 50)))
def test_interquartile_mean_is_the_slow_one(scores):
    expected = oracles.quartiles_cut_mean(scores.flatten())
    assert comparison.interquartile_mean(scores) == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(
        comparison.interquartile_mean(np.stack([scores, 2 * scores])),
        [expected, 2 * expected],
        atol=1e-9,
    )


def test_interquartile_mean_by_hand_and_of_one_seed_without_an_interval():
    scores = np.array([[0.0, 1.0, 100.0, 3.0]])
    assert comparison.interquartile_mean(scores) == 2.0
    np.testing.assert_equal(tuple(iqm_interval(scores, generator())), (2.0, np.nan, np.nan))


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
    assert mean == comparison.interquartile_mean(scores)
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
    found = comparison.stratified_bootstrap(
        statistic, *scores, generator=generator(), resamples=20_000
    )
    assert found.mean == statistic(*scores)
    np.testing.assert_allclose([found.low, found.high], [low, high], atol=0.01)


@given(tables)
def test_definitions(scores):
    flat = scores.flatten().tolist()
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


def test_seeds_are_drawn_with_replacement():
    """Of two seeds, 0 and 1, the mean is 0, a half, a half or 1, each as often."""
    scores, means = np.array([[0.0], [1.0]]), []

    def mean(drawn):
        means[:] = np.atleast_1d(drawn.mean(axis=(-2, -1)))
        return drawn.mean(axis=(-2, -1))

    comparison.stratified_bootstrap(mean, scores, generator=generator(), resamples=4000)
    values, counts = np.unique(means, return_counts=True)
    assert values.tolist() == [0.0, 0.5, 1.0]
    np.testing.assert_allclose(counts / len(means), [0.25, 0.5, 0.25], atol=0.03)


@pytest.mark.parametrize(
    ("scores", "options", "sentence"),
    [
        (np.zeros(3), {}, r"scores must be finite, \[seeds, tasks\], got shape \(3,\)"),
        (np.zeros((0, 3)), {}, r"got shape \(0, 3\)"),
        (np.array([[np.nan]]), {}, "scores must be finite"),
        (X, {"resamples": 0}, "resamples must be at least 1, got 0"),
        (X, {"confidence": 1.0}, r"confidence must be in \(0, 1\), got 1.0"),
    ],
)
def test_refusals(scores, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        comparison.stratified_bootstrap(
            comparison.optimality_gap, scores, generator=generator(), **options
        )
    with pytest.raises(ValueError, match="must be of the same tasks, got 4 and 3"):
        comparison.probability_of_improvement(X, X[:, :3])


def test_normalised():
    assert comparison.normalised(0.0, -200.0, 200.0) == 0.5
