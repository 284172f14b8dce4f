"""Rows of a CSV file of scores, each checked, with the line that it is on."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from .games import game_slug

_COLUMNS = ("algorithm", "regime", "game", "seed", "score")


class Row(NamedTuple):
    """One score: the line it is on (from 1, the header's), and what the columns say.

    Its fields after the line and before the score tell which score it is.
    """

    line: int
    algorithm: str
    regime: str
    game: str
    seed: int
    score: float


def read_rows(path: Path, regimes: Sequence[str], regime: str = "") -> list[Row]:
    """Reads a file.

    Args:
      path: the CSV file.
      regimes: those that are known.
      regime: that of a file without the column.

    Raises:
      ValueError: names the line and the value that is wrong.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a file.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = [name.strip() for name in next(reader, [])]
        _check_header(path, header)
        defaults = {"algorithm": path.stem, "regime": regime, "seed": "0"}
        rows = []
        for cells in reader:
            if cells:
                where = f"{path} line {reader.line_num}"
                rows.append(_row(where, reader.line_num, header, cells, defaults, regimes))
    refuse_twice(path, rows)
    return rows


def _check_header(path: Path, header: list[str]) -> None:
    if not {"game", "score"} <= set(header) <= set(_COLUMNS) or len(set(header)) < len(header):
        raise ValueError(
            f"{path} line 1 must name the columns game and score, and may name algorithm, regime "
            f"and seed, got {','.join(header)!r}."
        )


def _row(
    where: str,
    line: int,
    header: list[str],
    cells: list[str],
    defaults: dict[str, str],
    regimes: Sequence[str],
) -> Row:
    if len(cells) != len(header):
        raise ValueError(f"{where} must have {len(header)} cells, got {','.join(cells)!r}.")
    cell = {**defaults, **dict(zip(header, map(str.strip, cells), strict=True))}
    if not cell["algorithm"]:
        raise ValueError(f"{where} has no name of an algorithm.")
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
    return Row(line, cell["algorithm"], cell["regime"], game, int(seed), score)


def _number(where: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{where}: {name} must be a finite number, got {text!r}.")
    return value


def refuse_twice(path: Path, rows: Iterable[Row]) -> None:
    """Refuses two scores of the same algorithm, regime, game and seed.

    Raises:
      ValueError: names both lines.
    """
    lines: dict[tuple[str, str, str, int], int] = {}
    for row in rows:
        first = lines.setdefault(row[1:5], row.line)
        if first != row.line:
            raise ValueError(
                f"{path} line {row.line} has {row.game} of {row.algorithm!r} again, with the score "
                f"{row.score:g}: it is on line {first} already."
            )
