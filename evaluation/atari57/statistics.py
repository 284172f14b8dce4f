"""Statistics that compare algorithms by their scores in several games.

`A` denotes the number of algorithms and `G` the number of games. Scores are finite float64.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize, stats
from scipy.sparse import csgraph

from ..statistics import check_table

_ELO = 400.0 / np.log(10.0)  # rating points in one unit of log odds


class Summary(NamedTuple):
    """Statistics over games of human-normalised scores: 0 is random play, 1 is human play."""

    median: float
    mean: float
    capped_mean: float  # of scores clipped to [0, 1] (Badia et al. 2020)
    percentile_5: float
    games_above_human: int


def human_normalised(scores: np.ndarray, random: np.ndarray, human: np.ndarray) -> np.ndarray:
    """`(score - random) / |human - random|`, game by game.

    The denominator is an absolute value: at human starts in Video Pinball, the human score (15,641)
    is below the random one (20,452), and a signed difference would reverse the order of scores
    `[..., G]`.

    Raises:
      ValueError: human and random are equal in a game.
    """
    if np.any(human == random):
        game = int(np.flatnonzero(human == random)[0])
        raise ValueError(f"human and random must differ, both are {random[game]} in game {game}.")
    return (np.asarray(scores, np.float64) - random) / np.abs(human - random)


def summarise(normalised: np.ndarray) -> Summary:
    """The summary of one algorithm's human-normalised scores, `[G]` with G at least 1."""
    return Summary(
        median=float(np.median(normalised)),
        mean=float(np.mean(normalised)),
        capped_mean=float(np.mean(np.clip(normalised, 0.0, 1.0))),
        percentile_5=float(np.percentile(normalised, 5)),
        games_above_human=int(np.sum(normalised > 1.0)),
    )


def mean_rank(scores: np.ndarray) -> np.ndarray:
    """Mean rank over games: the rank is the number of algorithms with at least the same score.

    Tied algorithms therefore all get the worst of their ranks, as in Reactor's tables (README.md).

    Scores are `[A, G]`, mean ranks `[A]`, in [1, A].
    """
    lowest_first = -check_table(scores, "algorithms", "games")
    return stats.rankdata(lowest_first, axis=0, method="max").mean(axis=1)


def count_wins(scores: np.ndarray) -> np.ndarray:
    """Numbers of games `[A, A]` in which the first index beats the second; a tie is half a win.

    Scores are `[A, G]`; the diagonal is 0.
    """
    scores = check_table(scores, "algorithms", "games")
    wins = 0.5 * (1.0 + np.sign(scores[:, None] - scores[None])).sum(axis=-1)
    np.fill_diagonal(wins, 0.0)
    return wins


def elo(wins: np.ndarray, anchor: int) -> np.ndarray:
    """Elo ratings: maximum-likelihood estimates of a Bradley-Terry model.

    In the model, i beats j with probability `1 / (1 + 10^((R_j - R_i) / 400))`, independently in
    each game. A difference of 400 points is odds of ten to one (Reactor, "Rank and Elo
    evaluation").

    A rating has no finite maximum if a group of algorithms never loses to the others. Algorithms
    in a group above the anchor get +inf, those in a group below it -inf, and those without games
    that connect them to the anchor NaN. The other ratings are the limit of the maximisation.

    Args:
      wins: `[A, A]`, >= 0: wins of the first index over the second; a tie counts half.
      anchor: index of the algorithm with rating 0.

    Raises:
      ValueError: the wins are not a square matrix of finite numbers >= 0.
    """
    wins = np.asarray(wins, np.float64)
    if wins.ndim != 2 or wins.shape[0] != wins.shape[1]:
        raise ValueError(f"wins must be a square, got shape {wins.shape}.")
    if not np.all(np.isfinite(wins) & (wins >= 0)):
        raise ValueError("wins must be finite and at least 0.")
    above, below = _reaches(wins, anchor), _reaches(wins.T, anchor)
    equals = np.flatnonzero(above & below)
    ratings = np.select([above & ~below, below & ~above], [np.inf, -np.inf], np.nan)
    strengths = _strengths(wins[np.ix_(equals, equals)])
    ratings[equals] = _ELO * (strengths - strengths[equals == anchor])
    return ratings


def _reaches(wins: np.ndarray, goal: int) -> np.ndarray:
    """Algorithms with a chain of wins to `goal`, and `goal` itself: bool `[A]`."""
    found = csgraph.breadth_first_order(wins.T > 0, goal, return_predecessors=False)
    return np.isin(np.arange(len(wins)), found)


def _strengths(wins: np.ndarray) -> np.ndarray:
    """Maximum-likelihood log strengths `[A]`, the first 0; finite if all are connected."""
    if len(wins) == 1:
        return np.zeros(1)
    games = wins + wins.T

    def loss(free: np.ndarray) -> tuple[float, np.ndarray]:
        gaps = np.subtract.outer(*[np.append(0.0, free)] * 2)
        gradient = (games / (1.0 + np.exp(-gaps)) - wins).sum(axis=1)
        return float((wins * np.logaddexp(0.0, -gaps)).sum()), gradient[1:]

    def hessian(free: np.ndarray) -> np.ndarray:
        gaps = np.subtract.outer(*[np.append(0.0, free)] * 2)
        curvature = games / (2.0 + np.exp(gaps) + np.exp(-gaps))
        return (np.diag(curvature.sum(axis=1)) - curvature)[1:, 1:]

    start = np.zeros(len(wins) - 1)
    found = optimize.minimize(
        loss, start, jac=True, hess=hessian, method="trust-exact", options={"gtol": 1e-7}
    )
    return np.append(0.0, found.x)
