"""Prints the table of this folder and draws its curves: python report.py, in this folder."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from retrax.evaluation.plots import read_metrics
from retrax.evaluation.suites import find_suite

RUNS = {"control_suite": "tab:grey", "small": "tab:blue", "acer": "tab:green"}  # the others: D4PG
COLUMNS = 4
WINDOW = 5  # rows of metrics.csv in a moving average


def draw(axes: plt.Axes, run: Path, color: str) -> None:
    """The training return against the steps, smoothed."""
    metrics = read_metrics(run)
    known = ~np.isnan(metrics["episode_return"])
    smooth = np.convolve(metrics["episode_return"][known], np.ones(WINDOW) / WINDOW, "valid")
    axes.plot(metrics["steps"][known][WINDOW - 1 :], smooth, color=color)


def main() -> None:
    """Prints and draws."""
    tasks = [task for task in find_suite("control").tasks if Path(f"small-{task.name}-0").exists()]
    _, grid = plt.subplots(-(-len(tasks) // COLUMNS), COLUMNS, figsize=(14, 6), layout="tight")
    for axes, task in zip(grid.flat, tasks, strict=False):
        published = {score.algorithm.split()[0]: score.score for score in task.published}
        cells = [task.name]
        for name, color in RUNS.items():
            run = Path(f"{name}-{task.name}-0")
            draw(axes, run, color)
            evaluation = json.loads((run / "evaluation.json").read_text())
            cells.append(f"{evaluation['mean_return']:.0f}")
        cells += [f"{published[name]:.0f}" for name in ("D4PG", "A3C")]
        axes.axhline(published["D4PG"], color="tab:red", linestyle="--")
        axes.set(title=task.name, xlabel="environment steps", ylim=(0, 1000))
        print(f"| {' | '.join(cells)} |")
    plt.savefig("curves.png", dpi=60)


if __name__ == "__main__":
    main()
