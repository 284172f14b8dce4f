"""The computed cells of this page: `python docs/results/result_tables.py classic`."""

from pathlib import Path

import numpy as np
from result_files import draw_suite, published, runs, threshold

from retrax.evaluation.suites import find_suite

HERE = Path(__file__).parent
AGENTS = {"D4PG": "d4pg", "ACER": "acer", "Reactor": "reactor", "Agent57": "agent57"}


def classic(row: dict[str, str]) -> dict[str, str]:
    """The mean of the seeds' returns; Agent57's of all episodes and of its greedy arm alone."""
    (task,) = [each for each in find_suite("classic").tasks if each.environment == row["task"]]
    computed = {"steps": f"{task.steps:,}", "solved at": f"{threshold(task.environment):g}"}
    for title, agent in AGENTS.items():
        scores = [run.score for run in runs(HERE, f"{agent}-{task.name}")]
        computed[title] = f"{round(np.mean(scores), 1) + 0.0:.1f}" if scores else ""
    greedy = [run.greedy for run in runs(HERE, f"agent57-{task.name}")]
    computed["Agent57, greedy arm"] = f"{np.mean(greedy):.1f}" if greedy else ""
    others = published("classic", task.name).items()
    zoos = ", ".join(f"{name.partition(' (')[0]} {score:g}" for (name, _), score in others)
    return computed | {"zoos of Stable Baselines 3 and 2": zoos}


def draw() -> None:
    """Draws all agents beside the zoos'."""
    zoos = {
        (name, steps) for task in find_suite("classic").tasks for name, steps, _ in task.published
    }
    lines = {of: f"published: {of[0]}" for of in sorted(zoos, key=str)}
    draw_suite(HERE, {agent: title for title, agent in AGENTS.items()}, lines, columns=3)
