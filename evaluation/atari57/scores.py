"""Published scores of 57 games, as data, and a user's own in the same form.

A file of scores is CSV with a header. Its columns, in any order: `game` (slug or ALE id) and
`score`; and where they say more than the file as a whole, `algorithm`, `regime` and `seed`.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .games import GAMES
from .rows import Row, read_rows, refuse_twice

# How an episode begins: after 0 to 30 no-ops, or where a person had played to.
REGIMES = ("noop", "human_start")
# What was measured in neither: means of the last 100 training episodes.
_OTHER_REGIMES = ("ppo_paper_last100_40M",)
# Episodes from saved states stand beside those from human starts, which nobody published.
_USER_REGIMES = {"noop": "noop", "human_start": "human_start", "states": "human_start"}
_DATA = Path(__file__).parents[1] / "data"


class Source(NamedTuple):
    """Where the scores of one algorithm in one regime were taken from.

    Attributes:
      algorithm: as in the scores.
      regime: as in the scores.
      games: how many of the 57 it has.
      source: the publication, repository or table.
      note: what was checked, and what is odd.
    """

    algorithm: str
    regime: str
    games: int
    source: str
    note: str


class Headline(NamedTuple):
    """A number that a paper prints about one algorithm.

    Attributes:
      paper: authors and year.
      regime: one of `REGIMES`.
      algorithm: as in the scores.
      statistic: `median`, `mean`, `capped_mean`, `percentile_5` (all of human-normalised scores,
        where the human is 1), `games_above_human`, `mean_rank` or `elo`.
      value: as printed.
    """

    paper: str
    regime: str
    algorithm: str
    statistic: str
    value: float


def load_scores(regime: str = "noop") -> dict[str, np.ndarray]:
    """The published scores.

    Args:
      regime: one of `REGIMES`. In the data, human starts come with `human_start`'s own random and
        human scores.

    Returns:
      From an algorithm's name to its scores, float64 `[57]` in the order of `GAMES`; NaN for games
      that its source leaves out. `random` and `human` are among them, and complete.

    Raises:
      ValueError: `regime` is unknown.
    """
    if regime not in REGIMES:
        raise ValueError(f"regime must be one of {', '.join(REGIMES)}, got {regime!r}.")
    rows = read_rows(_DATA / "atari57_scores.csv", (*REGIMES, *_OTHER_REGIMES))
    return {key[0]: scores for key, scores in _arrays(rows, regime).items()}


def load_sources() -> list[Source]:
    """Where the published scores come from, one entry for each algorithm and regime."""
    with (_DATA / "atari57_sources.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return [Source(row[0], row[1], int(row[2]), *row[3:]) for row in rows]


def load_headlines(regime: str = "noop") -> list[Headline]:
    """What the papers print about the algorithms, for comparison with our own statistics."""
    with (_DATA / "atari57_headlines.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    rows = [row for row in rows if row[1] == regime]
    return [Headline(row[0], row[1], row[2], row[3], float(row[4])) for row in rows]


def read_scores(path: Path, regime: str) -> dict[str, np.ndarray]:
    """A user's scores.

    Rows of another regime are left out. A file without the column `algorithm` is about one, named
    as the file; without `regime`, about the one that is asked for; without `seed`, about one seed.

    Args:
      path: the CSV file. Rows of the regime `states` count as `human_start`.
      regime: one of `REGIMES`.

    Returns:
      From an algorithm's name to its scores, float64 `[R, 57]`: R seeds, games in the order of
      `GAMES`.

    Raises:
      ValueError: in one sentence with line and value: a score that is no finite number, an unknown
        game or regime, a seed that is no integer, the same game twice, or one that is missing.
    """
    rows = read_rows(path, tuple(_USER_REGIMES), regime)
    rows = [row._replace(regime=_USER_REGIMES[row.regime]) for row in rows]
    refuse_twice(path, rows)  # a game under `states` and under `human_start`
    found: dict[str, list[np.ndarray]] = {}
    for (algorithm, seed), scores in _arrays(rows, regime).items():
        _refuse_missing(path, [r for r in rows if r[1:3] == (algorithm, regime)], seed, scores)
        found.setdefault(algorithm, []).append(scores)
    if not found:
        raise ValueError(f"{path} has no scores in the regime {regime!r}.")
    return {algorithm: np.stack(scores) for algorithm, scores in found.items()}


def _refuse_missing(path: Path, rows: Sequence[Row], seed: int, scores: np.ndarray) -> None:
    missing = [game for game, score in zip(GAMES, scores, strict=True) if np.isnan(score)]
    if missing:
        lines = [row.line for row in rows if row.seed == seed]
        seeds = f" with seed {seed}" if len({row.seed for row in rows}) > 1 else ""
        raise ValueError(
            f"{path} lines {min(lines)} to {max(lines)} have {len(lines)} of 57 games of "
            f"{rows[0].algorithm!r}{seeds}: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing."
        )


def _arrays(rows: Iterable[Row], regime: str) -> dict[tuple[str, int], np.ndarray]:
    """From algorithm and seed to scores `[57]`."""
    column = {game: number for number, game in enumerate(GAMES)}
    found: dict[tuple[str, int], np.ndarray] = {}
    for row in rows:
        if row.regime == regime:
            key = (row.algorithm, row.seed)
            scores = found.setdefault(key, np.full(len(GAMES), np.nan))
            scores[column[row.game]] = row.score
    return found
