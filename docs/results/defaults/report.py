"""Prints the table of this folder and draws its curves from runs/.

Usage, in the directory of the runs: python report.py OUTPUT.png.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

GOALS = {  # the greedy return to reach; None where there is no goal
    "d4pg_mountain_car": 90,
    "d4pg_pendulum": -200,
    "d4pg_half_cheetah": 1500,
    "d4pg_hopper": 500,
    "acer_cart_pole": 475,
    "acer_acrobot": -100,
    "acer_frozen_lake": 0.6,
    "acer_pendulum": -200,
    "acer_lunar_lander": 200,
    "reactor_acrobot": -100,
    "reactor_cart_pole": 475,
    "agent57_acrobot": -100,
    "agent57_mountain_car": -130,
    "acer_blackjack": None,
    "acer_cliff_walking": None,
    "d4pg_swimmer": None,
    "d4pg_walker": None,
}
COLUMNS = 4
WINDOW = 5  # rows of metrics.csv in a moving average


def runs(task: str) -> list[Path]:
    """The complete runs of the three seeds."""
    found = [Path("runs", f"{task}-{seed}") for seed in range(3)]
    return [run for run in found if (run / "evaluation.json").exists()]


def rows_of(run: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv."""
    with open(run / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def greedy_return(evaluation: dict[str, Any]) -> float:
    """The mean return; Agent57's is that of its greedy arm alone (half of the episodes)."""
    return evaluation["modes"].get("greedy_arm", evaluation)["mean_return"]


def draw(axes: plt.Axes, run: Path) -> None:
    """The training return against the steps, smoothed; nothing if no episode ended."""
    rows = [row for row in rows_of(run) if row["episode_return"]]
    if not rows:
        return
    steps, returns = (np.array([float(r[k]) for r in rows]) for k in ("steps", "episode_return"))
    window = min(WINDOW, len(returns))
    smooth = np.convolve(returns, np.ones(window) / window, "valid")
    axes.plot(steps[window - 1 :], smooth, color="tab:blue", alpha=0.7)


def main(output: str) -> None:
    """Prints and draws."""
    made = [task for task in GOALS if runs(task)]
    _, grid = plt.subplots(
        -(-len(made) // COLUMNS), COLUMNS, figsize=(14, 9), layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(made) :]:
        axes.axis("off")
    for axes, task in zip(grid.flat, made, strict=False):
        chosen, goal = runs(task), GOALS[task]
        evaluations = [json.loads((run / "evaluation.json").read_text()) for run in chosen]
        config = json.loads((chosen[0] / "config.json").read_text())
        each = ", ".join(f"{greedy_return(evaluation):.4g}" for evaluation in evaluations)
        seconds = np.mean([float(rows_of(run)[-1]["seconds"]) for run in chosen])
        print(
            f"| {config['agent']} | {config['environment']} | {config['steps']:,} | {each} | "
            f"{'' if goal is None else goal} | {seconds:.0f} |"
        )
        for run in chosen:
            draw(axes, run)
        if goal is not None:
            axes.axhline(goal, color="tab:grey", linestyle="--")
        axes.set(title=f"{config['agent']}, {config['environment']}", xlabel="environment steps")
    plt.savefig(output, dpi=60)


if __name__ == "__main__":
    main(sys.argv[1])
