"""Tables that compare published algorithms and a user's, with the papers' printed statistics.

`R` denotes the number of seeds and `A` the number of algorithms.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...basics.sentences import did_you_mean
from ..comparison import interquartile_mean, stratified_bootstrap
from ..statistics import Interval
from .scores import GAMES, load_headlines, load_scores
from .statistics import Summary, count_wins, elo, human_normalised, mean_rank, summarise

# Part of every comparison: ranks include both, and the human's rating is 0.
_ALWAYS = ("random", "human")
_RESAMPLING_SEED = 0


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
    published = load_scores(regime)
    printed: dict[str, dict[str, float]] = {}
    for headline in load_headlines(regime):
        printed.setdefault(headline.algorithm, {})[headline.statistic] = headline.value
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
        entries.append(
            Entry(
                algorithm=name,
                own=name in own,
                normalised=normalised,
                summary=summarise(normalised),
                mean_rank=float(rank),
                elo=float(rating),
                iqm=iqm,
                seeds=len(seeds),
                printed=printed.get(name, {}),
            )
        )
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
