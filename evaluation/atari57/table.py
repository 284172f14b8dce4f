"""Tables that compare published algorithms and a user's, with the papers' printed statistics.

`A` denotes the number of algorithms, `G` of games, `R` of seeds. Scores are finite float64.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special
from scipy.sparse import csgraph

from ...basics.sentences import did_you_mean
from ..statistics import Interval, check_table, interquartile_mean, stratified_bootstrap
from .scores import GAMES, load_headlines, load_scores

_ALWAYS = ("random", "human")  # in every comparison: ranks include both, the human's rating is 0
_RESAMPLING_SEED = 0
_ELO = 400.0 / np.log(10.0)  # rating points in one unit of log odds


class Summary(NamedTuple):
    """Statistics over games of human-normalised scores: 0 is random play, 1 is human play."""

    median: float
    mean: float
    capped_mean: float  # of scores clipped to [0, 1] (Badia et al. 2020)
    percentile_5: float
    games_above_human: int


class Entry(NamedTuple):
    """The statistics of one algorithm; rank and Elo are among all of the table."""

    algorithm: str
    own: bool  # whether the scores are the user's
    normalised: np.ndarray  # `[57]`, human-normalised scores, averaged over seeds
    summary: Summary  # of `normalised`
    mean_rank: float
    elo: float  # 0 for the human; infinite for an algorithm that won or lost every game
    iqm: Interval  # of seeds and games, with limits if there are several seeds
    seeds: int
    printed: dict[str, float]  # the papers' values, by `median`, `mean_rank`, `elo` ...


class Table(NamedTuple):
    """A comparison: random and human first, then the others in the requested order."""

    regime: str  # how the episodes began
    entries: list[Entry]
    # Whether the algorithms are those of Reactor's table. Only then are mean rank and Elo, which
    # depend on the compared algorithms, comparable to the printed ones.
    as_printed: bool


def make_table(
    regime: str = "noop",
    algorithms: Sequence[str] | None = None,
    own: Mapping[str, np.ndarray] | None = None,
) -> Table:
    """Compares published algorithms and a user's, with deterministic resampling.

    Args:
      regime: one of `REGIMES`.
      algorithms: names of `load_scores(regime)`; None: those of Reactor's table. `random` and
        `human` are always included.
      own: output of `read_scores`: from name to scores `[R, 57]`.

    Raises:
      ValueError: an algorithm is unknown or lacks scores of some games, or a name of `own` is that
        of a published algorithm.
    """
    published, printed = load_scores(regime), load_headlines(regime)
    standard = [name for name, statistics in printed.items() if "elo" in statistics]
    pool = list(dict.fromkeys([*_ALWAYS, *(standard if algorithms is None else algorithms)]))
    for name in pool:
        _check_published(name, regime, published)
    own = dict(own or {})
    for name in own:
        if name in published:
            raise ValueError(f"{name!r} is a published algorithm: give your own another name.")
    scores = {name: published[name][None] for name in pool} | own
    means = np.stack([seeds.mean(axis=0) for seeds in scores.values()])
    random, human = published["random"], published["human"]
    ranks, ratings = mean_rank(means), elo(count_wins(means), list(scores).index("human"))
    entries = []
    rows = zip(scores.items(), means, ranks, ratings, strict=True)
    for (name, seeds), mean, rank, rating in rows:
        normalised = human_normalised(mean, random, human)
        iqm = stratified_bootstrap(
            interquartile_mean,
            human_normalised(seeds, random, human),
            generator=np.random.default_rng(_RESAMPLING_SEED),
        )
        measured = summarise(normalised), float(rank), float(rating), iqm, len(seeds)
        entries.append(Entry(name, name in own, normalised, *measured, printed.get(name, {})))
    return Table(regime, entries, not own and set(pool) == set(standard))


def _check_published(name: str, regime: str, published: Mapping[str, np.ndarray]) -> None:
    if name not in published:
        complete = [known for known, scores in published.items() if not np.isnan(scores).any()]
        raise ValueError(
            f"There are no scores of {name!r} in the regime {regime!r}"
            f"{did_you_mean(name, published)}: there are those of {', '.join(complete)}."
        )
    missing = [game for game, score in zip(GAMES, published[name], strict=True) if np.isnan(score)]
    if missing:
        raise ValueError(
            f"{name!r} has scores of {len(GAMES) - len(missing)} games in the regime {regime!r}, "
            f"not of all 57: {', '.join(missing)} were not published."
        )


def human_normalised(scores: np.ndarray, random: np.ndarray, human: np.ndarray) -> np.ndarray:
    """`(score - random) / |human - random|`, game by game.

    The denominator is an absolute value: at human starts in Video Pinball, the human score (15,641)
    is below the random one (20,452), and a signed difference would reverse the order of scores
    `[..., G]`. A ValueError names a game in which human and random are equal.
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
    scores = check_table(scores, "algorithms", "games")
    return (scores >= scores[:, None]).sum(axis=1).mean(axis=1)


def count_wins(scores: np.ndarray) -> np.ndarray:
    """Numbers of games `[A, A]` in which the first index beats the second; a tie is half a win.

    Scores are `[A, G]`; the diagonal is 0.
    """
    scores = check_table(scores, "algorithms", "games")
    wins = 0.5 * (1.0 + np.sign(scores[:, None] - scores)).sum(axis=-1)
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

    def gaps(free: np.ndarray) -> np.ndarray:
        return np.subtract.outer(*[np.append(0.0, free)] * 2)

    def loss(free: np.ndarray) -> float:
        return float((wins * np.logaddexp(0.0, -gaps(free))).sum())

    def gradient(free: np.ndarray) -> np.ndarray:
        return (games * special.expit(gaps(free)) - wins).sum(axis=1)[1:]

    def hessian(free: np.ndarray) -> np.ndarray:
        curvature = games * special.expit(gaps(free)) * special.expit(-gaps(free))
        return (np.diag(curvature.sum(axis=1)) - curvature)[1:, 1:]

    methods: dict[str, Any] = {"jac": gradient, "hess": hessian, "method": "trust-exact"}
    found = optimize.minimize(loss, np.zeros(len(wins) - 1), **methods, options={"gtol": 1e-7})
    return np.append(0.0, found.x)
