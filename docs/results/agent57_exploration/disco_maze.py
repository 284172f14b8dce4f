"""Writes disco_maze.csv from the runs of disco_maze.sh.

A row is a snapshot and an arm: the different cells that it visited in an episode, the start
included, with its interval of 95 %, and the length of an episode, both means of 100 episodes.

Usage, in the directory of the runs: python disco_maze.py DIRECTORY, to which it is written.
"""

import csv
import sys
from pathlib import Path

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


def main(output: Path) -> None:
    """Reads all runs of ./runs that are complete."""
    found = sorted(path.parent for path in Path("runs").glob("*/complete"))
    rows = [row for run in found for row in read(run)]
    with open(output / "disco_maze.csv", "w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
