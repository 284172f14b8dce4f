"""Writes disco_maze.csv from the runs of disco_maze.sh, and draws disco_maze.png.

A row is a snapshot and an arm: the different cells that it visited in an episode, the start
included, with its interval of 95 %, and the length of an episode, both means of 100 episodes.

Usage, in the directory of the runs: python disco_maze.py DIRECTORY, to which both are written.
"""

import csv
import sys
from pathlib import Path

import matplotlib.pyplot as plt

RUNGS = {
    "r2d2_retrace": "R2D2 with Retrace",
    "ngu": "NGU",
    "split": "separate values",
    "agent57": "Agent57",
    "ngu_pixels": "NGU, pixels",
}
COLUMNS = ("rung", "seed", "arm", "steps", "cells", "low", "high", "length")


def read(run: Path) -> list[dict[str, str]]:
    """The rows of a run: what was paid is less by the start."""
    rung, _, seed = run.name.rpartition("-")
    with open(run / "arms.csv", newline="") as file:
        return [
            {"rung": rung, "seed": seed, "arm": row["arm"], "steps": row["steps"]}
            | {"cells": f"{float(row['visits']) + 1:.2f}"}
            | {key: f"{float(row[key]) + 1:.2f}" for key in ("low", "high")}
            | {"length": f"{float(row['length']):.1f}"}
            for row in csv.DictReader(file)
        ]


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Cells against steps, of the most curious arm."""
    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for rung, label in RUNGS.items():
        of_rung = [row for row in rows if row["rung"] == rung]
        arm = max((row["arm"] for row in of_rung), default="0")
        for seed in sorted({row["seed"] for row in of_rung}):
            of_run = [row for row in of_rung if (row["seed"], row["arm"]) == (seed, arm)]
            steps, cells, low, high = (
                [float(row[key]) for row in of_run] for key in ("steps", "cells", "low", "high")
            )
            (line,) = axes.plot(steps, cells, "o-", label=f"{label}, arm {arm}")
            axes.fill_between(steps, low, high, color=line.get_color(), alpha=0.2)
    axes.set(xlabel="steps", ylabel="cells visited in an episode", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main(output: Path) -> None:
    """Reads all runs of ./runs that are complete."""
    found = sorted(path.parent for path in Path("runs").glob("*/complete"))
    rows = [row for run in found for row in read(run)]
    with open(output / "disco_maze.csv", "w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    draw(rows, output / "disco_maze.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
