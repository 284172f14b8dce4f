"""What a page of results keeps, for its report: runs, their scores and curves, numbers in cells.

* `curves.csv`: the rows of the runs' metrics.csv, without most of the metrics;
* `scores.csv`: the evaluated runs, in the form of `retrax benchmark`;
* `configs.json`: each config once, without its seed, and the runs that have it.

`collect.py` writes them. A run is called NAME-SEED in configs.json.
"""

import functools
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from retrax.evaluation import mean_and_interval, plot_learning_curves
from retrax.evaluation.statistics import moving_average
from retrax.evaluation.suites import find_suite, read_rows

FOLDER = Path(__file__).parent


class Run(NamedTuple):
    """A run.

    Attributes:
      name: the same for all seeds.
      seed: its seed.
      config: of config.json, without the seed.
      curve: from a column of curves.csv to float64 `[N]`, NaN where a cell is empty.
      scores: its row of scores.csv; empty if it was not evaluated.
    """

    name: str
    seed: int
    config: dict[str, Any]
    curve: dict[str, np.ndarray]
    scores: dict[str, str]

    @property
    def score(self) -> float:
        """The mean return of its evaluation."""
        return float(self.scores["score"])

    @property
    def greedy(self) -> float:
        """The mean return of a greedy evaluation; Agent57's is that of its greedy arm alone."""
        return float(self.scores.get("greedy_arm") or self.score)


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV; none if there is no file."""
    return read_rows(path) if path.is_file() else []


@functools.cache
def runs_of(page: Path) -> dict[str, list[Run]]:
    """The runs of a page, by name, in order of seeds."""
    curves: dict[tuple[str, int], list[dict[str, str]]] = {}
    for row in rows_of(page / "curves.csv"):
        curves.setdefault((row["run"], int(row["seed"])), []).append(row)
    scores = {(row["run"], int(row["seed"])): row for row in rows_of(page / "scores.csv")}
    configs = {
        name: each["config"]
        for each in json.loads((page / "configs.json").read_text(encoding="utf-8"))
        for name in each["runs"]
    }
    found: dict[str, list[Run]] = {}
    for (name, seed), rows in sorted(curves.items()):
        columns = [column for column in rows[0] if column not in ("run", "seed")]
        curve = {c: np.array([float(row[c] or "nan") for row in rows]) for c in columns}
        run = Run(name, seed, configs[f"{name}-{seed}"], curve, scores.get((name, seed), {}))
        found.setdefault(name, []).append(run)
    return found


def runs(page: Path, name: str) -> list[Run]:
    """The evaluated runs of a name, in order of seeds."""
    return [run for run in runs_of(page).get(name, ()) if run.scores]


def training_return(run: Run, part: float) -> float:
    """The mean return of the episodes that ended in the last `1 / part` of the curve's rows."""
    metrics = run.curve
    rows = slice(-max(1, round(len(metrics["steps"]) / part)), None)
    ended = np.diff(metrics["episodes"], prepend=0.0)[rows]
    total = np.where(ended > 0, metrics["episode_return"][rows] * ended, 0.0)
    return float(np.sum(total) / np.sum(ended))


def last_million_frames(run: Run) -> float:
    """The training return that is published for Atari: of the last 250,000 agent steps."""
    return training_return(run, max(1.0, run.curve["steps"][-1] / 250_000))


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


def draw_curve(axes: Any, run: Run, window: int, **style: Any) -> None:
    """Training returns against steps, each point the mean of the last rows."""
    known = ~np.isnan(run.curve["episode_return"])
    if known.any():
        smooth = moving_average(run.curve["episode_return"][known], window)
        axes.plot(run.curve["steps"][known], smooth, **style)


def draw_suite(
    page: Path, sides: dict[str, str], lines: dict[tuple[str, int | None], str], columns: int
) -> None:
    """Draws a suite's tasks beside published scores into curves.png.

    A curve is a seed, a point the mean of the evaluations; on a page of training returns (MinAtar)
    they differ from the curve by how the agent acts.

    Args:
      page: of the suite's name.
      sides: labels by what names of runs have in the place of AGENT: `AGENT-TASK`.
      lines: labels by published algorithm and steps.
      columns: panels side by side.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    tasks = [
        task
        for task in find_suite(page.name).tasks
        if any(runs(page, f"{side}-{task.name}") for side in sides)
    ]
    rows, labels = -(-len(tasks) // columns), list(dict.fromkeys(lines.values()))
    figure, grid = plt.subplots(
        rows, columns, figsize=(3.6 * columns, 2.9 * rows), layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(tasks) :]:
        axes.axis("off")
    for axes, task in zip(grid.flat, tasks, strict=False):
        for number, (side, label) in enumerate(sides.items()):
            chosen, color = runs(page, f"{side}-{task.name}"), f"C{number}"
            for run in chosen:
                draw_curve(axes, run, 5, color=color, label=label, linewidth=1)
            if chosen:
                end, score = chosen[0].curve["steps"][-1], np.mean([run.greedy for run in chosen])
                axes.plot(end, score, "o", color=color, label=f"{label}, evaluated")
        scores = published(page.name, task.name)
        for of, label in lines.items():
            if of in scores:
                number = labels.index(label)
                style = {"linestyle": ("--", ":", "-.")[number % 3], "color": f"C{7 - number}"}
                axes.axhline(scores[of], label=label, **style)
        axes.set(title=task.name, xlabel="environment steps", ylabel="return")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.3)
    handles = {}
    for axes in grid.flat:
        found = axes.get_legend_handles_labels()
        handles |= {label: line for line, label in zip(*found, strict=True)}
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9
    )
    figure.savefig(page / "curves.png", dpi=70)
    plt.close(figure)


def plot(
    chosen: Iterable[Run], output: Path, window: int = 1, metric: str = "episode_return"
) -> None:
    """The figure of `retrax plot` with the directories of these runs."""
    with tempfile.TemporaryDirectory() as folder:
        directories = []
        for run in chosen:
            directory = Path(folder) / run.name / str(run.seed)
            directory.mkdir(parents=True)
            config = {**run.config, "seed": run.seed}
            (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
            rows = zip(run.curve["steps"], run.curve[metric], strict=True)
            lines = [f"steps,{metric}", *(f"{x},{'' if y != y else y}" for x, y in rows), ""]
            (directory / "metrics.csv").write_text("\n".join(lines), encoding="utf-8")
            directories.append(directory)
        plot_learning_curves(directories, output, metric=metric, window=window)
