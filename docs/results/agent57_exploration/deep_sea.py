"""Writes deep_sea.csv from the runs of make.sh, and prints medians.

A row is a run: the steps up to which the treasure was first found in training (a log row with a
positive mean return), and those of the first evaluation whose greedy arm has a mean return of at
least 0.9. Empty: not in this run.

Usage, in the directory of the runs: python deep_sea.py deep_sea.csv.
"""

import csv
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

SOLVED = 0.9  # the optimum is 0.99, never finding the treasure at most 0


def first(rows: list[dict[str, str]], column: str, least: float) -> int | None:
    """Steps of the first row whose value is at least so much."""
    for row in rows:
        if row[column] and float(row[column]) >= least:
            return int(row["steps"])
    return None


def main(output: str) -> None:
    """Writes and prints."""
    solved = defaultdict(list)
    with open(output, "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["run", "size", "seed", "steps", "found", "solved", "updates", "seconds"])
        for run in sorted(Path("runs").glob("*_*-*")):
            if not (run / "complete").exists():
                continue
            name, _, rest = run.name.rpartition("_")
            size, seed = rest.split("-")
            with open(run / "metrics.csv", newline="") as metrics:
                rows = list(csv.DictReader(metrics))
            steps = json.loads((run / "config.json").read_text())["steps"]
            found = first(rows, "episode_return", 1e-6)
            goal = first(rows, "evaluation_return_greedy_arm", SOLVED)
            seconds = f"{float(rows[-1]['seconds']):.0f}"
            table.writerow([name, size, seed, steps, found, goal, rows[-1]["updates"], seconds])
            solved[name, int(size)].append(float("inf") if goal is None else goal)
    for (name, size), steps in sorted(solved.items()):
        print(f"{name}, size {size}: median {statistics.median(steps)} steps of {len(steps)} seeds")


if __name__ == "__main__":
    main(sys.argv[1])
