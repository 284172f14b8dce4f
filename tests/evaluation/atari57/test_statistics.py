"""Normalised scores, ranks, wins and ratings: against slow definitions, limits and hand sums."""

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from retrax.evaluation.atari57 import (
    count_wins,
    elo,
    human_normalised,
    mean_rank,
    summarise,
)

# Few different values, so that there are ties.
SCORES = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 8)),
    elements=st.integers(-3, 3).map(float),
)


def test_normalised_by_hand():
    """50 is twice what the human is above random; a human below it does not turn the order."""
    for random, human, scores, expected in (
        (10.0, 30.0, [10.0, 30.0, 50.0, 0.0], [0.0, 1.0, 2.0, -0.5]),
        (20.0, 15.0, [5.0, 20.0, 80.0], [-3.0, 0.0, 12.0]),
    ):
        limits = np.full(len(scores), random), np.full(len(scores), human)
        np.testing.assert_array_equal(human_normalised(np.array([scores]), *limits), [expected])


def test_a_human_at_random_is_refused():
    with pytest.raises(ValueError, match=r"must differ, both are 7\.0 in game 1"):
        human_normalised(np.zeros(2), np.array([1.0, 7.0]), np.array([2.0, 7.0]))


def test_summary_by_hand():
    """Of 0, 1, 2, ..., 19 less 1: the 5 % quantile lies at 0.95."""
    found = summarise(np.arange(20.0)[::-1] - 1.0)
    assert found.median == found.mean == 8.5
    assert found.capped_mean == pytest.approx(18 / 20)  # -1 counts 0, and 0 counts 0
    assert found.percentile_5 == pytest.approx(-0.05)
    assert found.games_above_human == 17  # the 1 is not above


@given(SCORES)
def test_mean_ranks_are_the_slow_ones(scores):
    np.testing.assert_allclose(mean_rank(scores), oracles.worst_tied_mean_ranks(scores))


def test_ranks_by_hand():
    """30, 20, 20, 10: places 1, 3, 3, 4, for the two in the middle share the worse of theirs."""
    np.testing.assert_array_equal(
        mean_rank(np.array([[20.0], [10.0], [30.0], [20.0]]))[:], [3, 4, 1, 3]
    )


@given(SCORES)
def test_wins_are_the_slow_ones_and_every_game_is_won_once(scores):
    wins = count_wins(scores)
    np.testing.assert_array_equal(wins, oracles.wins_with_half_ties(scores))
    games = np.full(wins.shape, float(scores.shape[1]))
    np.fill_diagonal(games, 0.0)
    np.testing.assert_array_equal(wins + wins.T, games)


@pytest.mark.parametrize("function", [mean_rank, count_wins])
@pytest.mark.parametrize("scores", [np.zeros(3), np.zeros((2, 0)), np.array([[0.0, np.nan]])])
def test_scores_must_be_a_finite_matrix(function, scores):
    with pytest.raises(ValueError, match=r"must be finite, \[algorithms, games\], got shape"):
        function(scores)


def test_two_players_by_hand():
    """Ten to one is 400 points, three to one 400 log10(3)."""
    np.testing.assert_allclose(elo(np.array([[0, 1], [10, 0]]), 0), [0, 400], atol=1e-4)
    expected = [-400 * np.log10(3), 0]
    np.testing.assert_allclose(elo(np.array([[0, 1], [3, 0]]), 1), expected, atol=1e-4)


@st.composite
def connected_wins(draw):
    """Every player beats every other at least a little: the maximum is finite."""
    count = draw(st.integers(2, 5))
    wins = draw(hnp.arrays(np.float64, (count, count), elements=st.floats(0.5, 20)))
    np.fill_diagonal(wins, 0.0)
    return wins


@settings(max_examples=20, deadline=None)
@given(connected_wins(), st.data())
def test_ratings_are_those_of_the_fixed_point(wins, data):
    anchor = data.draw(st.integers(0, len(wins) - 1))
    expected = oracles.elo_by_minorisation(wins, anchor, iterations=3000)
    np.testing.assert_allclose(elo(wins, anchor), expected, atol=1e-3)


@settings(max_examples=20, deadline=None)
@given(connected_wins())
def test_expected_wins_are_the_wins(wins):
    """Where the likelihood is largest, the model expects of each as many wins as it has."""
    ratings = elo(wins, 0)
    chance = 1.0 / (1.0 + 10.0 ** ((ratings[None] - ratings[:, None]) / 400.0))
    expected = ((wins + wins.T) * chance).sum(axis=1)
    np.testing.assert_allclose(expected, wins.sum(axis=1), atol=1e-4)


def test_another_anchor_shifts_all_ratings():
    wins = np.array([[0, 3, 1], [2, 0, 5], [4, 1, 0]])
    first, last = elo(wins, 0), elo(wins, 2)
    np.testing.assert_allclose(first - first[2], last, atol=1e-4)
    assert last[2] == 0.0


def test_who_never_loses_or_never_wins_is_at_infinity():
    """0 beats all, 1 and 2 share, 3 beats nobody: 1 and 2 are as if alone."""
    wins = np.array([[0, 5, 5, 5], [0, 0, 3, 5], [0, 1, 0, 5], [0, 0, 0, 0]])
    found = elo(wins, 1)
    np.testing.assert_allclose(found[1:3], elo(np.array([[0, 3], [1, 0]]), 0))
    assert found[0] == np.inf
    assert found[3] == -np.inf


def test_infinities_are_limits():
    """A half win, growing to nothing, moves the others towards the same ratings."""
    wins = np.array([[0, 5, 5], [0, 0, 3], [0, 1, 0]], float)
    limit = elo(wins, 1)
    almost = elo(wins + 1e-7 * (wins.T > 0), 1)
    assert almost[0] > 1500
    np.testing.assert_allclose(almost[1:], limit[1:], atol=1e-2)


def test_who_met_nobody_has_no_rating():
    np.testing.assert_array_equal(
        elo(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]), 0), [0, 0, np.nan]
    )
    np.testing.assert_array_equal(elo(np.zeros((1, 1)), 0), [0])


@pytest.mark.parametrize(
    ("wins", "message"),
    [
        (np.zeros((2, 3)), r"must be a square, got shape \(2, 3\)"),
        (np.array([[0, -1], [1, 0]]), "must be finite and at least 0"),
        (np.array([[0, np.nan], [1, 0]]), "must be finite and at least 0"),
    ],
)
def test_wrong_wins_are_refused(wins, message):
    with pytest.raises(ValueError, match=message):
        elo(wins, 0)


@given(hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-5, 50)))
def test_the_median_is_a_percentile(normalised):
    found = summarise(normalised).median
    assert found == pytest.approx(stats.scoreatpercentile(normalised, 50), abs=1e-9)
