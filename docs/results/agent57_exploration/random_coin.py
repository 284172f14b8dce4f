"""Writes random_coin.csv from the runs of random_coin.sh, and draws random_coin.png.

A row is an evaluation of arm 0 in a run: its return, and how many of the updates so far were made
with sequences of arm 0 (in batches' worth, from `intrinsic_weight`, the batch's mean of beta_j).
The figure: the ladder against those updates, and the return of arm 0 (mean of the evaluations from
192,000 to 256,000 steps) by the weight beta of the other arm's intrinsic reward.

Usage, in the directory of the runs: python random_coin.py DIRECTORY, to which both are written.
"""

import csv
import json
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt

WEIGHTS = ("0", "0.01", "0.1", "0.3")
BETA_STEPS = 192_000, 257_000  # of the evaluations for the figure of beta
VALUES = {"split": "separate values", "ngu": "mixed values (NGU)"}
RUNGS = {
    "r2d2": "R2D2",
    "r2d2_retrace": "with Retrace",
    "r2d2_bandit": "R2D2 (bandit)",
    "ngu_0.3": "NGU",
    "split_0.3": "separate values",
    "meta_controller_0.3": "and bandit",
    "agent57_0.3": "Agent57",
    "meta_controller_ngu_discounts": "separate, bandit, NGU's discounts",
    "agent57_ngu_discounts": "Agent57, NGU's discounts",
}
EXPLOITATIVE = ("evaluation_return_greedy_arm", "evaluation_return")


class Evaluation(NamedTuple):
    """A row of the table."""

    run: str
    steps: int
    updates: int
    updates_of_arm_0: int
    evaluation_return: float


def read(run: Path) -> list[Evaluation]:
    """The evaluations of a run."""
    config = json.loads((run / "config.json").read_text())["agent_config"]
    largest = config["intrinsic_weight"] if config["arm_choice"] != "zero" else 0.0
    found, updates, of_arm_0 = [], 0, 0.0
    with open(run / "metrics.csv", newline="") as file:
        for row in csv.DictReader(file):
            more = int(row["updates"]) - updates
            updates += more
            weight = float(row["intrinsic_weight"] or 0.0)
            # With beta = 0 the arms cannot be told apart by it: they are drawn evenly.
            of_arm_0 += more * (1.0 - weight / largest if largest else 1.0)
            returns = [float(row[column]) for column in EXPLOITATIVE if row.get(column)]
            if returns:
                numbers = int(row["steps"]), updates, round(of_arm_0)
                found.append(Evaluation(run.name, *numbers, returns[0]))
    return found


def draw(runs: dict[str, list[Evaluation]], path: Path) -> None:
    """Both figures, side by side."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
    for name, label in RUNGS.items():
        for rows in (rows for run, rows in runs.items() if run.rpartition("-")[0] == name):
            smooth = [
                statistics.mean(row.evaluation_return for row in rows[max(0, i - 2) : i + 1])
                for i in range(len(rows))
            ]
            left.plot([row.updates_of_arm_0 for row in rows], smooth, label=label)
    left.set(xlabel="updates with sequences of arm 0", ylabel="return of arm 0", ylim=(0, 1.05))
    for (values, label), style in zip(VALUES.items(), ("o-", "s--"), strict=True):
        means = []
        for beta in WEIGHTS:
            rows = [
                r for run, rows in runs.items() if run.startswith(f"{values}_{beta}-") for r in rows
            ]
            chosen = [r.evaluation_return for r in rows if BETA_STEPS[0] <= r.steps < BETA_STEPS[1]]
            means.append(statistics.mean(chosen) if chosen else float("nan"))
        print(label, [f"{mean:.2f}" for mean in means])
        right.plot(range(len(WEIGHTS)), means, style, label=label)
    right.set(xticks=range(len(WEIGHTS)), xticklabels=WEIGHTS, ylim=(0, 1.05))
    right.set(xlabel="beta of arm 1", ylabel="return of arm 0 after 256,000 steps")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main(output: Path) -> None:
    """Reads all complete runs."""
    complete = [mark.parent for mark in sorted(Path("runs").glob("*/complete"))]
    runs = {run.name: read(run) for run in complete}
    with open(output / "random_coin.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Evaluation._fields)
        for rows in runs.values():
            table.writerows(rows)
    draw(runs, output / "random_coin.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
