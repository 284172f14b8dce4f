"""Writes sizes.csv from what sizes.sh keeps.

A row is a run: its steps, those up to the first treasure, and the episodes and steps after which
the treasure had been found in more than a tenth of all episodes. Empty: not in this run.

Usage, in the directory of the runs: python sizes.py DIRECTORY, to which it is written.
"""

import csv
import sys
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """A row of the table."""

    size: int
    seed: int
    steps: int
    found: int | None
    episodes: int | None
    solved: int | None


def read(path: Path) -> Run:
    """The run whose lines of explored.py are in a file SIZE-SEED.txt."""
    size, seed = map(int, path.stem.split("-"))
    found, episodes, solved, steps = None, None, None, 0
    for line in path.read_text().splitlines():
        word, *numbers = line.split()
        if word == "solved":
            episodes, solved = map(int, numbers)
        else:
            steps, found = int(numbers[0]), int(numbers[4]) or None
    return Run(size, seed, steps, found, episodes, solved)


def main(output: Path) -> None:
    """Reads all runs of ./sizes."""
    runs = sorted(map(read, Path("sizes").glob("*.txt")))
    with open(output / "sizes.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["size", "seed", "steps", "found", "solved_episodes", "solved_steps"])
        table.writerows(runs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
