"""The figures of this page: `python docs/results/result_tables.py agent57_exploration --draw`."""

import statistics
from pathlib import Path
from typing import Any

from result_files import plot, runs_of

from retrax.evaluation.suites import read_rows

HERE = Path(__file__).parent
MAZE = {
    "r2d2_retrace": "R2D2 with Retrace",
    "ngu": "NGU",
    "split": "separate values",
    "agent57": "Agent57",
    "ngu_pixels": "NGU, pixels",
}
COIN = {
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
WEIGHTS = ("0", "0.01", "0.1", "0.3")
BETA_STEPS = 192_000, 257_000  # of the evaluations for the figure of beta
VALUES = {"split": "separate values", "ngu": "mixed values (NGU)"}


def ladder() -> None:
    """Evaluations of the greedy arm on deep_sea 12."""
    chosen = [run for name, of in runs_of(HERE).items() if name.endswith("_12") for run in of]
    plot(chosen, HERE / "ladder.png", metric="evaluation_return_greedy_arm")


def sizes(axes: Any) -> None:
    """Episodes against size, on a logarithmic scale."""
    from matplotlib.ticker import ScalarFormatter

    rows = read_rows(HERE / "sizes.csv")
    sizes = sorted({int(row["size"]) for row in rows})
    expected = [2.0**size for size in sizes]
    axes.plot(sizes, expected, "k--", lw=1, label="uniform play: first treasure, in the mean")
    solved = [(int(row["size"]), row["solved_episodes"]) for row in rows]
    axes.scatter(
        *zip(*((size, int(episodes)) for size, episodes in solved if episodes), strict=True),
        label="Agent57: average regret below 0.9",
    )
    others = [(int(r["size"]), int(r["steps"])) for r in rows if not r["solved_episodes"]]
    if others:
        label = "Agent57: not within these episodes"
        points = zip(*((size, steps // size) for size, steps in others), strict=True)
        axes.scatter(*points, marker="x", color="tab:red", label=label)
    axes.set(yscale="log", ylim=(100, 3e4), xticks=sizes, xlabel="size N", ylabel="episodes")
    axes.yaxis.set_major_formatter(ScalarFormatter())


def disco_maze(axes: Any) -> None:
    """Cells against steps, of the most curious arm."""
    rows = read_rows(HERE / "disco_maze.csv")
    for rung, label in MAZE.items():
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


def random_coin(left: Any, right: Any) -> None:
    """The ladder against arm 0's updates, and arm 0's return by the weight of the other arm.

    The latter is the mean of the evaluations from 192,000 to 256,000 steps.
    """
    runs: dict[str, list[tuple[int, int, float]]] = {}
    for row in read_rows(HERE / "random_coin.csv"):
        point = int(row["steps"]), int(row["updates_of_arm_0"]), float(row["evaluation_return"])
        runs.setdefault(row["run"].rpartition("-")[0], []).append(point)
    for name, label in COIN.items():
        returns = [value for _, _, value in runs[name]]
        smooth = [statistics.mean(returns[max(0, i - 2) : i + 1]) for i in range(len(returns))]
        left.plot([updates for _, updates, _ in runs[name]], smooth, label=label)
    left.set(xlabel="updates with sequences of arm 0", ylabel="return of arm 0", ylim=(0, 1.05))
    for (values, label), style in zip(VALUES.items(), ("o-", "s--"), strict=True):
        first, end = BETA_STEPS
        means = [
            statistics.mean(x for at, _, x in runs[f"{values}_{beta}"] if first <= at < end)
            for beta in WEIGHTS
        ]
        right.plot(range(len(WEIGHTS)), means, style, label=label)
    right.set(xticks=range(len(WEIGHTS)), xticklabels=WEIGHTS, ylim=(0, 1.05))
    right.set(xlabel="beta of arm 1", ylabel="return of arm 0 after 256,000 steps")


def draw() -> None:
    """Draws all figures."""
    import matplotlib.pyplot as plt

    ladder()
    for content, size in ((sizes, (6.4, 4.0)), (disco_maze, (6.4, 4.0)), (random_coin, (9.6, 3.8))):
        panels = 2 if content is random_coin else 1
        figure, grid = plt.subplots(1, panels, figsize=size, layout="constrained", squeeze=False)
        content(*grid[0])
        for axes in grid[0]:
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
        figure.savefig(HERE / f"{content.__name__}.png", dpi=120)
        plt.close(figure)
