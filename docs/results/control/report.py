"""The computed cells and curves of this page: `python docs/results/result_tables.py control`."""

from pathlib import Path

import numpy as np
from result_files import draw_suite, joined, published, runs, training_return

from retrax.evaluation.suites import read_rows, suites

HERE = Path(__file__).parent
STEPS = 10**8  # of the published agents
D4PG, A3C = ("D4PG (pixels)", STEPS), ("A3C", STEPS)
STATE = ("D4PG (state)", 500_000)


def returns(side: str, task: str) -> str:
    """The evaluations of all seeds."""
    return joined((run.score for run in runs(HERE, f"{side}-{task}")), ".0f")


def mean_of_suite() -> dict[str, str]:
    """Means over all tasks: of each seed that has them all, and what is published."""
    tasks = [task.name for task in suites()["control"].tasks]
    scores = [{run.seed: run.score for run in runs(HERE, f"small-{task}")} for task in tasks]
    seeds = sorted(set.intersection(*map(set, scores)))
    state = [published("control", task)[STATE] for task in tasks]
    return {
        "small": joined((np.mean([each[seed] for each in scores]) for seed in seeds), ".0f"),
        "published: D4PG from state, 500,000 steps": f"{np.mean(state):.0f}",
    }


def d4pg(row: dict[str, str]) -> dict[str, str]:
    """D4PG's two presets."""
    if row["task"].startswith("mean"):
        return mean_of_suite()
    others = published("control", row["task"])
    columns = {
        "published: D4PG from state, 500,000 steps": STATE,
        "published: D4PG from pixels, 1e8 steps": D4PG,
        "published: A3C from state, 1e8 steps": A3C,
    }
    return {
        "control_suite": returns("control_suite", row["task"]),
        "small": returns("small", row["task"]),
        **{name: f"{others[key]:.0f}" if key in others else "" for name, key in columns.items()},
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


def one_task(row: dict[str, str]) -> dict[str, str]:
    """D4PG on finger-turn_hard, seed 7: the evaluation, and training in the last fifth."""
    names = {
        "none (100,000 rows)": "n_step_5",
        "--agent.n-step 3": "n_step_3",
        "--agent.n-step 1": "n_step_1",
        "--agent.replay.capacity 500000": "capacity",
    }
    (run,) = runs(HERE, f"{names[row['change']]}-finger-turn_hard")
    low, high = (float(run.scores[bound]) for bound in ("low", "high"))
    return {
        "greedy": f"{run.score:.0f} ({low:.0f} to {high:.0f})",
        "training": f"{training_return(run, 5):.0f}",
    }


def pools(row: dict[str, str]) -> dict[str, str]:
    """`small` on EnvPool and on dm_control: the evaluations of all seeds."""
    sides = {"EnvPool": "envpool", "dm_control": "small"}
    return {column: returns(side, row["task"]) for column, side in sides.items()}


def trials(row: dict[str, str]) -> dict[str, str]:
    """Changes of `small` after 250,000 steps: the evaluation of each seed, then training."""
    found = {}
    for task in ("finger-turn_hard", "walker-run", "cheetah-run"):
        rows = [
            each
            for each in read_rows(HERE / "trials.csv")
            if (each["change"], each["task"]) == (row["change"].strip("`"), task)
        ]
        scores = (
            joined((float(each[of]) for each in rows), ".0f") for of in ("greedy", "training")
        )
        found[task] = "; ".join(scores) if rows else ""
    return found


def draw() -> None:
    """Draws D4PG's presets and ACER."""
    sides = {"small": "D4PG", "control_suite": "D4PG, control_suite", "acer": "ACER"}
    lines = {STATE: "published: D4PG, state, 0.5M", D4PG: "D4PG, pixels, 100M", A3C: "A3C, 100M"}
    draw_suite(HERE, sides, lines, columns=4)
