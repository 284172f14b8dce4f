"""57 Atari games: their ids, published scores, and a user's scores in the same form.

A file of scores is CSV with a header. Its columns, in any order, are `game` (slug or ALE id) and
`score`, and optionally `algorithm`, `regime` and `seed`.
"""

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...basics.sentences import did_you_mean
from ..suites import read_rows

_DATA = Path(__file__).parents[1] / "data"
_PUBLISHED = read_rows(_DATA / "atari57_scores.csv")
GAMES = tuple(sorted({row["game"] for row in _PUBLISHED}))  # the order of all arrays of scores
_IDS = {slug: f"ALE/{slug.title().replace('-', '')}-v5" for slug in GAMES}
# How an episode begins: after 0 to 30 no-ops, or in a state that a human player reached.
REGIMES = ("noop", "human_start")
# Scores from saved states are compared with human starts, whose states were never published.
_COUNTS_AS = {"noop": "noop", "human_start": "human_start", "states": "human_start"}
_COLUMNS = ("algorithm", "regime", "game", "seed", "score")


def ale_id(slug: str) -> str:
    """The id of a game: `ALE/MsPacman-v5` for `ms-pacman`; ValueError for other names."""
    return _known(slug, _IDS)


def game_slug(name: str) -> str:
    """The slug of a game, from its slug or its id; a ValueError suggests the most similar one."""
    return _known(name, {slug: slug for slug in GAMES} | {id: slug for slug, id in _IDS.items()})


def _known(name: str, values: dict[str, str]) -> str:
    if name not in values:
        hint = did_you_mean(name, [*_IDS, *_IDS.values()])
        raise ValueError(f"{name!r} is not one of the 57 games{hint}")
    return values[name]


def load_scores(regime: str = "noop") -> dict[str, np.ndarray]:
    """Published scores by algorithm, float64 `[57]` in the order of `GAMES`; NaN if omitted.

    `random` and `human` are among them, complete, and of the regime, which is one of `REGIMES`.

    Raises:
      ValueError: `regime` is unknown.
    """
    if regime not in REGIMES:
        raise ValueError(f"regime must be one of {', '.join(REGIMES)}, got {regime!r}.")
    scores: dict[str, np.ndarray] = {}
    for row in _PUBLISHED:
        if row["regime"] == regime:
            found = scores.setdefault(row["algorithm"], np.full(len(GAMES), np.nan))
            found[GAMES.index(row["game"])] = float(row["score"])
    return scores


def load_headlines(regime: str = "noop") -> dict[str, dict[str, float]]:
    """The statistics that papers print, for comparison with recomputed ones.

    By algorithm and statistic: an attribute of `Summary`, `mean_rank` or `elo`.
    """
    printed: dict[str, dict[str, float]] = {}
    for row in read_rows(_DATA / "atari57_headlines.csv"):
        if row["regime"] == regime:
            printed.setdefault(row["algorithm"], {})[row["statistic"]] = float(row["value"])
    return printed


def read_scores(path: Path, regime: str) -> dict[str, np.ndarray]:
    """Reads a user's scores: by algorithm, float64 `[R, 57]`, R seeds, in the order of `GAMES`.

    Records of other regimes are ignored; those of the regime `states` count as `human_start`.
    Without the column `algorithm`, the file's name is the algorithm's. Without `regime`, all
    records are of the given regime. Without `seed`, all records are of one seed.

    Raises:
      ValueError: a score is not a finite number, a game or regime is unknown, a seed is not an
        integer, or a game is repeated or missing. The message names line and value.
    """
    scores: dict[tuple[str, str, int], dict[str, tuple[int, float]]] = {}  # to line and score
    for line, where, cell in _lines(path, regime):
        if not cell["algorithm"]:
            raise ValueError(f"{where} has no algorithm name.")
        if cell["regime"] not in _COUNTS_AS:
            allowed = ", ".join(_COUNTS_AS)
            raise ValueError(f"{where}: regime must be one of {allowed}, got {cell['regime']!r}.")
        try:
            game = game_slug(cell["game"])
        except ValueError as error:
            raise ValueError(f"{where}: {error}.") from None
        seed, score = _number(where, "seed", cell["seed"]), _number(where, "score", cell["score"])
        if seed != int(seed):
            raise ValueError(f"{where}: seed must be an integer, got {cell['seed']!r}.")
        of = _COUNTS_AS[cell["regime"]], cell["algorithm"], int(seed)
        games = scores.setdefault(of, {})
        if game in games:
            raise ValueError(
                f"{where} repeats {game} of {cell['algorithm']!r}, with score {score:g}: it is "
                f"already on line {games[game][0]}."
            )
        games[game] = line, score
    found: dict[str, list[list[float]]] = {}
    runs = {(name, seed): games for (of, name, seed), games in scores.items() if of == regime}
    names = [name for name, _ in runs]
    for (algorithm, seed), games in runs.items():
        if missing := [game for game in GAMES if game not in games]:
            lines = [line for line, _ in games.values()]
            of_seed = f" with seed {seed}" if names.count(algorithm) > 1 else ""
            raise ValueError(
                f"{path} lines {min(lines)} to {max(lines)} have {len(lines)} of 57 games of "
                f"{algorithm!r}{of_seed}: {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing."
            )
        found.setdefault(algorithm, []).append([games[game][1] for game in GAMES])
    if not found:
        raise ValueError(f"{path} has no scores in the regime {regime!r}.")
    return {algorithm: np.array(seeds) for algorithm, seeds in found.items()}


def _lines(path: Path, regime: str) -> Iterator[tuple[int, str, dict[str, str]]]:
    """The lines of a file: their numbers, what to call them, and all cells by their columns."""
    if not path.is_file():
        raise ValueError(f"{path} is not a file.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = [name.strip() for name in next(reader, [])]
        if not {"game", "score"} <= set(header) <= set(_COLUMNS) or len(set(header)) < len(header):
            raise ValueError(
                f"{path} line 1 must name the columns game and score, and may name algorithm, "
                f"regime and seed, got {','.join(header)!r}."
            )
        for cells in filter(None, reader):
            where = f"{path} line {reader.line_num}"
            if len(cells) != len(header):
                raise ValueError(f"{where} must have {len(header)} cells, got {','.join(cells)!r}.")
            given = dict(zip(header, map(str.strip, cells), strict=True))
            cell = {"algorithm": path.stem, "regime": regime, "seed": "0", **given}
            yield reader.line_num, where, cell


def _number(where: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{where}: {name} must be a finite number, got {text!r}.")
    return value
