"""The computed cells and the curves of this page: `python docs/results/result_tables.py control`.

`--draw` draws curves.png: D4PG's presets and ACER, and the published score of D4PG.
"""

from pathlib import Path

import numpy as np
from result_files import draw_curve, joined, published, runs

from retrax.evaluation.suites import find_suite, read_rows

HERE = Path(__file__).parent
STEPS = 10**8  # of the published agents
SIDES = {"control_suite": "tab:grey", "small": "tab:blue", "acer": "tab:green"}  # the others: D4PG
COLUMNS = 4
WINDOW = 5  # rows of metrics.csv in a moving average
D4PG, A3C = ("D4PG (pixels)", STEPS), ("A3C", STEPS)


def returns(side: str, task: str) -> str:
    """The evaluations of all seeds."""
    return joined((run.score for run in runs(HERE, f"{side}-{task}")), ".0f")


def d4pg(row: dict[str, str]) -> dict[str, str]:
    """D4PG's two presets."""
    others = published("control", row["task"])
    return {
        "control_suite": returns("control_suite", row["task"]),
        "small": returns("small", row["task"]),
        "published: D4PG from pixels, 1e8 steps": f"{others[D4PG]:.0f}",
        "published: A3C from state, 1e8 steps": f"{others[A3C]:.0f}",
    }


def acer(row: dict[str, str]) -> dict[str, str]:
    """ACER with today's replay ratio and the one before."""
    return {
        "ratio 8": returns("acer_8", row["task"]),
        "ratio 16": returns("acer", row["task"]),
        "published: A3C from state, 1e8 steps": f"{published('control', row['task'])[A3C]:.0f}",
    }


def tried(row: dict[str, str]) -> dict[str, str]:
    """The mean training return of the last 100,000 steps."""
    change = row["change"].partition(" (")[0]
    both = "--agent.replay.replay-ratio 16 --agent.learning-rate 1e-3"
    flags = {"none": "", "both": both}.get(change, change)
    rows = [each for each in read_rows(HERE / "tried.csv") if each["flags"] == flags]
    end = int(rows[-1]["steps"]) - 100_000
    found = [float(each["episode_return"]) for each in rows if int(each["steps"]) > end]
    return {"return": f"{np.mean(found):.0f}"}


def draw() -> None:
    """Draws the curves of all tasks, of seed 0."""
    import matplotlib.pyplot as plt

    tasks = [task for task in find_suite("control").tasks if runs(HERE, f"small-{task.name}")]
    rows = -(-len(tasks) // COLUMNS)
    _, grid = plt.subplots(rows, COLUMNS, figsize=(14, 6), layout="tight")
    for axes, task in zip(grid.flat, tasks, strict=False):
        for side, color in SIDES.items():
            draw_curve(axes, runs(HERE, f"{side}-{task.name}")[0], WINDOW, color=color)
        axes.axhline(published("control", task.name)[D4PG], color="tab:red", linestyle="--")
        axes.set(title=task.name, xlabel="environment steps", ylim=(0, 1000))
    plt.savefig(HERE / "curves.png", dpi=60)
