"""Score records of a CSV file, checked, with their line numbers."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from .games import game_slug

_COLUMNS = ("algorithm", "regime", "game", "seed", "score")


class ScoreRecord(NamedTuple):
    """One score of a CSV file. The fields between `line` and `score` identify it.

    Attributes:
      line: its line number; the header is line 1.
      algorithm: name of the algorithm.
      regime: how the episodes began.
      game: the game's slug.
      seed: the seed.
      score: the score; finite.
    """

    line: int
    algorithm: str
    regime: str
    game: str
    seed: int
    score: float


def read_score_records(path: Path, regimes: Sequence[str], regime: str = "") -> list[ScoreRecord]:
    """Reads a file.

    Args:
      path: the CSV file.
      regimes: the valid regimes.
      regime: the regime of a file without this column.

    Raises:
      ValueError: names the line and the wrong value.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a file.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = [name.strip() for name in next(reader, [])]
        _check_header(path, header)
        defaults = {"algorithm": path.stem, "regime": regime, "seed": "0"}
        records = []
        for cells in reader:
            if cells:
                where = f"{path} line {reader.line_num}"
                records.append(_record(where, reader.line_num, header, cells, defaults, regimes))
    check_unique(path, records)
    return records


def _check_header(path: Path, header: list[str]) -> None:
    if not {"game", "score"} <= set(header) <= set(_COLUMNS) or len(set(header)) < len(header):
        raise ValueError(
            f"{path} line 1 must name the columns game and score, and may name algorithm, regime "
            f"and seed, got {','.join(header)!r}."
        )


def _record(
    where: str,
    line: int,
    header: list[str],
    cells: list[str],
    defaults: dict[str, str],
    regimes: Sequence[str],
) -> ScoreRecord:
    if len(cells) != len(header):
        raise ValueError(f"{where} must have {len(header)} cells, got {','.join(cells)!r}.")
    cell = {**defaults, **dict(zip(header, map(str.strip, cells), strict=True))}
    if not cell["algorithm"]:
        raise ValueError(f"{where} has no algorithm name.")
    if cell["regime"] not in regimes:
        allowed = ", ".join(regimes)
        raise ValueError(f"{where}: regime must be one of {allowed}, got {cell['regime']!r}.")
    try:
        game = game_slug(cell["game"])
    except ValueError as error:
        raise ValueError(f"{where}: {error}.") from None
    seed, score = _number(where, "seed", cell["seed"]), _number(where, "score", cell["score"])
    if seed != int(seed):
        raise ValueError(f"{where}: seed must be an integer, got {cell['seed']!r}.")
    return ScoreRecord(line, cell["algorithm"], cell["regime"], game, int(seed), score)


def _number(where: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{where}: {name} must be a finite number, got {text!r}.")
    return value


def check_unique(path: Path, records: Iterable[ScoreRecord]) -> None:
    """Checks that no two records have the same algorithm, regime, game and seed.

    Raises:
      ValueError: names both lines.
    """
    lines: dict[tuple[str, str, str, int], int] = {}
    for record in records:
        first = lines.setdefault(record[1:5], record.line)
        if first != record.line:
            raise ValueError(
                f"{path} line {record.line} repeats {record.game} of {record.algorithm!r}, with "
                f"score {record.score:g}: it is already on line {first}."
            )
