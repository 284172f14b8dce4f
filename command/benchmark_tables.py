"""The tables of a benchmark: scores, learning curves and bsuite's scores of its complete cells."""

import contextlib
import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..basics.writing import replacing
from ..environments.bsuite_tasks import PREFIX
from ..evaluation import bsuite, read_metrics
from ..evaluation.comparison import normalised
from ..evaluation.suites import Task
from ..training.config_file import read_config
from ..training.snapshots import Snapshots
from .grid import EVALUATION, Cell
from .resuming import read_continuation

SCORES = "scores.csv"
CURVES = "curves.csv"


def write_tables(directory: Path, cells: Sequence[Cell]) -> None:
    """Writes scores.csv and curves.csv of the complete cells."""
    complete = [(cell, cell.task) for cell in cells if cell.task and cell.score is not None]
    with _table(directory / SCORES) as write:
        write("agent preset task seed steps updates seconds episodes score low high normalised")
        for cell, task in complete:
            write(_scores_of(cell, task))
    with _table(directory / CURVES) as write:
        write("agent task seed steps episode_return")
        for cell, task in complete:
            metrics = read_metrics(cell.directory)
            for steps, value in zip(metrics["steps"], metrics["episode_return"], strict=True):
                if np.isfinite(value):  # an episode ended
                    write([cell.config.agent, task.name, cell.config.seed, int(steps), value])


def write_bsuite(directory: Path, cells: Sequence[Cell]) -> None:
    """Writes bsuite.csv of the complete cells: a row for each agent, seed, and experiment or tag.

    Raises:
      ValueError: a snapshot is damaged.
    """
    records: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for cell in cells:
        if cell.score is not None and (rows := _record(cell.directory)):
            of_seed = records.setdefault((cell.config.agent, cell.config.seed), {})
            of_seed[cell.config.environment.removeprefix(PREFIX)] = rows
    with _table(directory / bsuite.SCORES) as write:
        write("agent seed kind name score ids finished")
        for (agent, seed), found in sorted(records.items()):
            for score in bsuite.scores(found):
                write([agent, seed, *score])


@contextlib.contextmanager
def _table(path: Path) -> Iterator[Callable[[str | list[Any]], None]]:
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


def _record(run: Path) -> list[dict[str, Any]]:
    """What the environment of a run recorded up to the newest snapshot, for bsuite."""
    states = read_continuation(Snapshots(run)).environment_states()
    return states[0]["records"][0] if states else []
