"""Prints the table of this folder and draws its curves from runs/before and runs/after.

Usage, in the directory of the runs: python report.py OUTPUT.png. Intervals are those of the mean of
the seeds' greedy returns: 95 %, Student's t.
"""

import csv
import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from retrax.evaluation import mean_and_interval

TASKS = {
    "tree": "Reactor, CartPole-v1, 8,000 rows",
    "cart_pole": "ACER, CartPole-v1, 8 environments",
    "cart_pole_2_environments": "ACER, CartPole-v1, 2 environments",
    "pendulum": "ACER, Pendulum-v1, 8 environments",
    "pendulum_2_environments": "ACER, Pendulum-v1, 2 environments",
    "no_dueling": "ACER, Pendulum-v1, no stochastic dueling",
    "swingup": "D4PG, cartpole/swingup",
    "hopper": "D4PG, Hopper-v5",
}
WINDOW = 5  # rows of metrics.csv in a moving average


def runs(side: str, task: str) -> list[Path]:
    """The complete runs of the three seeds."""
    found = [Path("runs", side, f"{task}-{seed}") for seed in range(3)]
    return [run for run in found if (run / "evaluation.json").exists()]


def curve(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """Steps and training returns of the rows in which an episode ended."""
    with open(run / "metrics.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["episode_return"]]
    steps, returns = (np.array([float(r[k]) for r in rows]) for k in ("steps", "episode_return"))
    smooth = np.convolve(returns, np.ones(WINDOW) / WINDOW, "valid")
    return steps[WINDOW - 1 :], smooth


def main(output: str) -> None:
    """Prints and draws."""
    made = {task: title for task, title in TASKS.items() if runs("before", task)}
    _, grid = plt.subplots(1, len(made), figsize=(4 * len(made), 3.5), layout="constrained")
    for axes, (task, title) in zip(np.atleast_1d(grid), made.items(), strict=True):
        for side, colour in (("before", "tab:grey"), ("after", "tab:blue")):
            chosen = runs(side, task)
            returns = [
                json.loads((run / "evaluation.json").read_text())["mean_return"] for run in chosen
            ]
            if not returns:
                continue
            mean, low, high = mean_and_interval(np.array(returns))[:3]
            each = ", ".join(f"{value:.0f}" for value in returns)
            print(f"| {title} | {side} | {each} | {mean:.0f} ({low:.0f} to {high:.0f}) |")
            for run in chosen:
                axes.plot(*curve(run), color=colour, label=None if run != chosen[0] else side)
        axes.set(title=title, xlabel="environment steps", ylabel="return in training")
        axes.legend()
    plt.savefig(output, dpi=70)


if __name__ == "__main__":
    main(sys.argv[1])
