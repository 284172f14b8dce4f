"""Writes random_coin.csv from the runs of random_coin.sh.

A row is an evaluation of arm 0 in a run: its return, and how many of the updates so far were made
with sequences of arm 0 (in batches' worth, from `intrinsic_weight`, the batch's mean of beta_j).

Usage, in the directory of the runs: python random_coin.py DIRECTORY, to which it is written.
"""

import csv
import json
import sys
from pathlib import Path
from typing import NamedTuple

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


def main(output: Path) -> None:
    """Reads all complete runs."""
    complete = [mark.parent for mark in sorted(Path("runs").glob("*/complete"))]
    runs = {run.name: read(run) for run in complete}
    with open(output / "random_coin.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Evaluation._fields)
        for rows in runs.values():
            table.writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
