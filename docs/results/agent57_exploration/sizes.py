"""Writes sizes.csv from what sizes.sh keeps, and draws sizes.png.

A row is a run: its steps, those up to the first treasure, and the episodes and steps after which
the treasure had been found in more than a tenth of all episodes. Empty: not in this run.

Usage, in the directory of the runs: python sizes.py DIRECTORY, to which both files are written.
"""

import csv
import sys
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.ticker import ScalarFormatter


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


def draw(runs: list[Run], path: Path) -> None:
    """Episodes against size, on a logarithmic scale."""
    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    sizes = sorted({run.size for run in runs})
    expected = [2.0**size for size in sizes]
    axes.plot(sizes, expected, "k--", lw=1, label="uniform play: first treasure, in the mean")
    solved = [(run.size, run.episodes) for run in runs if run.episodes is not None]
    axes.scatter(*zip(*solved, strict=True), label="Agent57: average regret below 0.9")
    others = [(run.size, run.steps // run.size) for run in runs if run.episodes is None]
    if others:
        label = "Agent57: not within these episodes"
        axes.scatter(*zip(*others, strict=True), marker="x", color="tab:red", label=label)
    axes.set(yscale="log", ylim=(100, 3e4), xticks=sizes, xlabel="size N", ylabel="episodes")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main(output: Path) -> None:
    """Reads all runs of ./sizes."""
    runs = sorted(map(read, Path("sizes").glob("*.txt")))
    with open(output / "sizes.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["size", "seed", "steps", "found", "solved_episodes", "solved_steps"])
        table.writerows(runs)
    draw(runs, output / "sizes.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
