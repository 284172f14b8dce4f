"""Writes random_coin.csv from the runs of random_coin.sh, and draws random_coin.png.

A row is a run: its updates and seconds, and the mean returns of 100 episodes of each arm after it.
The figure: the exploitative arm by the weight of the intrinsic reward, split and mixed values.

Usage, in the directory of the runs: python random_coin.py DIRECTORY, to which both are written.
"""

import csv
import json
import sys
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt

WEIGHTS = ("0", "0.01", "0.1", "0.3")
LABELS = {"split": "split values", "ngu": "mixed values (NGU)"}


class Run(NamedTuple):
    """A row of the table."""

    name: str
    seed: int
    steps: int
    updates: int
    seconds: int
    arm0: float
    arm1: float | None


def read(run: Path) -> Run:
    """A run and its evaluations."""
    name, _, seed = run.name.rpartition("-")
    with open(run / "metrics.csv", newline="") as file:
        last = list(csv.DictReader(file))[-1]
    found = (json.loads(path.read_text())["mean_return"] for path in sorted(run.glob("arm?.json")))
    arm0, arm1 = (*found, None)[:2]
    seconds = round(float(last["seconds"]))
    return Run(name, int(seed), int(last["steps"]), int(last["updates"]), seconds, arm0, arm1)


def draw(runs: list[Run], path: Path) -> None:
    """The exploitative arm's mean return against beta."""
    figure, axes = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
    for values, label in LABELS.items():
        found = [
            (WEIGHTS.index(b), r.arm0) for b in WEIGHTS for r in runs if r.name == f"{values}_{b}"
        ]
        axes.plot(*zip(*found, strict=True), "o-" if values == "split" else "s--", label=label)
    axes.set(xticks=range(len(WEIGHTS)), xticklabels=WEIGHTS, ylim=(0, 1.05))
    axes.set(xlabel="beta of the other arm", ylabel="return of the exploitative arm")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main(output: Path) -> None:
    """Reads all complete runs."""
    runs = [read(mark.parent) for mark in sorted(Path("runs").glob("*/complete"))]
    with open(output / "random_coin.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Run._fields)
        table.writerows(runs)
    draw(runs, output / "random_coin.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
