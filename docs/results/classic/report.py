"""The computed cells of this page: `python docs/results/result_tables.py classic`."""

from pathlib import Path

import numpy as np
from result_files import published, runs, threshold

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
