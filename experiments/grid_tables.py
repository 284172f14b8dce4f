"""The tables of a benchmark: scores and learning curves of its complete cells."""

import contextlib
import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..basics.writing import replacing
from ..evaluation import read_metrics
from ..evaluation.comparison import normalised
from ..evaluation.suites import Task
from ..run_directory.config_file import read_config
from .grid import EVALUATION, Cell

SCORES = "scores.csv"
CURVES = "curves.csv"


def write_tables(directory: Path, cells: Sequence[Cell]) -> None:
    """Writes scores.csv and curves.csv of the complete cells."""
    complete = [(cell, cell.task) for cell in cells if cell.task and cell.score is not None]
    with table(directory / SCORES) as write:
        write("agent preset task seed steps updates seconds episodes score low high normalised")
        for cell, task in complete:
            write(_scores_of(cell, task))
    with table(directory / CURVES) as write:
        write("agent task seed steps episode_return")
        for cell, task in complete:
            metrics = read_metrics(cell.directory)
            for steps, value in zip(metrics["steps"], metrics["episode_return"], strict=True):
                if np.isfinite(value):  # an episode ended
                    write([cell.config.agent, task.name, cell.config.seed, int(steps), value])


@contextlib.contextmanager
def table(path: Path) -> Iterator[Callable[[str | list[Any]], None]]:
    """Writes a CSV file, whole or not at all; names of columns are given as one text."""
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        yield lambda row: writer.writerow(row.split() if isinstance(row, str) else row)


def _scores_of(cell: Cell, task: Task) -> list[Any]:
    found = json.loads((cell.directory / EVALUATION).read_text())
    metrics, config = read_metrics(cell.directory), read_config(cell.directory)
    score = found["mean_return"]
    return [
        *(config.agent, config.preset, task.name, config.seed, config.steps),
        *(int(metrics["updates"][-1]), round(float(metrics["seconds"][-1]), 1)),
        *(found["episodes"], score, found["low"], found["high"]),
        normalised(score, task.low, task.high),
    ]
