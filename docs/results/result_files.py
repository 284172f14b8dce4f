"""What the folders of results keep, for the reports of the pages: evaluations, runs, numbers.

A run is a folder NAME-SEED with `config.json`, `metrics.csv` and, on most pages, `evaluation.json`.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from retrax.evaluation import mean_and_interval, read_metrics
from retrax.evaluation.statistics import moving_average
from retrax.evaluation.suites import find_suite

FOLDER = Path(__file__).parent
_LINE = re.compile(r"^(?P<name>\S+) seed (?P<seed>\d+): (?P<seconds>\d+) s (?P<json>{.*})$", re.M)


def evaluations_of_file(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines `NAME seed SEED: SECONDS s JSON` of evaluations.txt, by name, in order of seeds."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for line in _LINE.finditer(path.read_text(encoding="utf-8")):
        evaluation = {**json.loads(line["json"]), "seconds": int(line["seconds"])}
        found.setdefault(line["name"], {})[int(line["seed"])] = evaluation
    return {name: [seeds[seed] for seed in sorted(seeds)] for name, seeds in found.items()}


def runs(folder: Path, name: str) -> list[Path]:
    """The evaluated runs of a name, in order of seeds."""
    found = sorted(folder.glob(f"{name}-[0-9]"))
    return [run for run in found if (run / "evaluation.json").is_file()]


def evaluation(run: Path) -> dict[str, Any]:
    """A run's evaluation."""
    return json.loads((run / "evaluation.json").read_text(encoding="utf-8"))


def greedy_return(of_run: dict[str, Any]) -> float:
    """The mean return of an evaluation; Agent57's is that of its greedy arm alone."""
    return of_run.get("modes", {}).get("greedy_arm", of_run)["mean_return"]


def training_return(run: Path, part: int) -> float:
    """The mean return of the episodes that ended in the last `1 / part` of metrics.csv's rows."""
    metrics = read_metrics(run)
    rows = slice(-(len(metrics["steps"]) // part), None)
    ended = np.diff(metrics["episodes"], prepend=0.0)[rows]
    total = np.where(ended > 0, metrics["episode_return"][rows] * ended, 0.0)
    return float(np.sum(total) / np.sum(ended))


def threshold(environment: str) -> float | None:
    """The return that solves a task: Gymnasium's, else that of the suite `classic`, else None."""
    registered = gymnasium.spec(environment).reward_threshold
    ours = {task.environment: task.high for task in find_suite("classic").tasks}
    return registered if registered is not None else ours.get(environment)


def published(suite: str, task: str) -> dict[tuple[str, int | None], float]:
    """Published scores of a task, by algorithm and steps."""
    (found,) = find_suite(suite).choose((task,))
    return {(score.algorithm, score.steps): score.score for score in found.published}


def joined(values: Iterable[float], form: str) -> str:
    """Numbers in a cell, one for each seed."""
    return ", ".join(format(value, form) for value in values)


def rounded(value: float | None, digits: int) -> str:
    """A number in a cell, never "-0"; "-" for none."""
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def with_interval(values: Sequence[float], form: str) -> str:
    """The mean of the seeds and its 95 % interval."""
    mean, low, high = (format(value, form) for value in mean_and_interval(values))
    return f"{mean} ({low} to {high})"


def draw_curve(axes: Any, run: Path, window: int, **style: Any) -> None:
    """Training returns against steps, each point the mean of the last rows."""
    metrics = read_metrics(run)
    known = ~np.isnan(metrics["episode_return"])
    if known.any():
        smooth = moving_average(metrics["episode_return"][known], window)
        axes.plot(metrics["steps"][known], smooth, **style)
