"""Published scores of 57 games, and a user's scores in the same form.

A file of scores is CSV with a header. Its columns, in any order, are `game` (slug or ALE id) and
`score`, and optionally `algorithm`, `regime` and `seed`.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .games import GAMES
from .score_records import ScoreRecord, check_unique, read_score_records

# How an episode begins: after 0 to 30 no-ops, or in a state that a human player reached.
REGIMES = ("noop", "human_start")
# Scores in neither regime: means of the last 100 training episodes.
_OTHER_REGIMES = ("ppo_paper_last100_40M",)
# Scores from saved states are compared with human starts, whose states were never published.
_USER_REGIMES = {"noop": "noop", "human_start": "human_start", "states": "human_start"}
_DATA = Path(__file__).parents[1] / "data"


class Source(NamedTuple):
    """The source of an algorithm's scores in one regime.

    Attributes:
      algorithm: as in the scores.
      regime: as in the scores.
      games: number of games with a score, at most 57.
      source: the publication, repository or table.
      note: what was checked, and irregularities.
    """

    algorithm: str
    regime: str
    games: int
    source: str
    note: str


class Headline(NamedTuple):
    """A statistic that a paper prints for an algorithm.

    Attributes:
      paper: authors and year.
      regime: one of `REGIMES`.
      algorithm: as in the scores.
      statistic: `median`, `mean`, `capped_mean`, `percentile_5` (all of human-normalised scores,
        where human is 1), `games_above_human`, `mean_rank` or `elo`.
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
      regime: one of `REGIMES`. The random and human scores are those of the regime.

    Returns:
      Dictionary from algorithm name to scores, float64 `[57]` in the order of `GAMES`; NaN for
      games that the source omits. It contains `random` and `human`, which are complete.

    Raises:
      ValueError: `regime` is unknown.
    """
    if regime not in REGIMES:
        raise ValueError(f"regime must be one of {', '.join(REGIMES)}, got {regime!r}.")
    records = read_score_records(_DATA / "atari57_scores.csv", (*REGIMES, *_OTHER_REGIMES))
    return {key[0]: scores for key, scores in _arrays(records, regime).items()}


def load_sources() -> list[Source]:
    """The sources of the published scores, one for each algorithm and regime."""
    with (_DATA / "atari57_sources.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return [Source(row[0], row[1], int(row[2]), *row[3:]) for row in rows]


def load_headlines(regime: str = "noop") -> list[Headline]:
    """The statistics that papers print, for comparison with recomputed ones."""
    with (_DATA / "atari57_headlines.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    rows = [row for row in rows if row[1] == regime]
    return [Headline(row[0], row[1], row[2], row[3], float(row[4])) for row in rows]


def read_scores(path: Path, regime: str) -> dict[str, np.ndarray]:
    """Reads a user's scores.

    Records of other regimes are ignored. Without the column `algorithm`, the file's name is the
    algorithm's. Without `regime`, all records are of the given regime. Without `seed`, all records
    are of one seed.

    Args:
      path: the CSV file. Records of the regime `states` count as `human_start`.
      regime: one of `REGIMES`.

    Returns:
      Dictionary from algorithm name to scores, float64 `[R, 57]`: R seeds, games in the order of
      `GAMES`.

    Raises:
      ValueError: a score is not a finite number, a game or regime is unknown, a seed is not an
        integer, or a game is repeated or missing. The message names line and value.
    """
    records = read_score_records(path, tuple(_USER_REGIMES), regime)
    records = [record._replace(regime=_USER_REGIMES[record.regime]) for record in records]
    check_unique(path, records)  # a game may be under `states` and under `human_start`
    found: dict[str, list[np.ndarray]] = {}
    for (algorithm, seed), scores in _arrays(records, regime).items():
        of_algorithm = [record for record in records if record[1:3] == (algorithm, regime)]
        _check_complete(path, of_algorithm, seed, scores)
        found.setdefault(algorithm, []).append(scores)
    if not found:
        raise ValueError(f"{path} has no scores in the regime {regime!r}.")
    return {algorithm: np.stack(scores) for algorithm, scores in found.items()}


def _check_complete(
    path: Path, records: Sequence[ScoreRecord], seed: int, scores: np.ndarray
) -> None:
    missing = [game for game, score in zip(GAMES, scores, strict=True) if np.isnan(score)]
    if missing:
        lines = [record.line for record in records if record.seed == seed]
        seeds = f" with seed {seed}" if len({record.seed for record in records}) > 1 else ""
        raise ValueError(
            f"{path} lines {min(lines)} to {max(lines)} have {len(lines)} of 57 games of "
            f"{records[0].algorithm!r}{seeds}: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing."
        )


def _arrays(records: Iterable[ScoreRecord], regime: str) -> dict[tuple[str, int], np.ndarray]:
    """Dictionary from (algorithm, seed) to scores `[57]`."""
    column = {game: number for number, game in enumerate(GAMES)}
    found: dict[tuple[str, int], np.ndarray] = {}
    for record in records:
        if record.regime == regime:
            key = (record.algorithm, record.seed)
            scores = found.setdefault(key, np.full(len(GAMES), np.nan))
            scores[column[record.game]] = record.score
    return found
