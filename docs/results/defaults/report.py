"""The computed cells and the curves of this page: `python docs/results/result_tables.py defaults`.

A row's goal is the environment's threshold (`result_files.threshold`); `--draw` draws curves.png.
"""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from result_files import Run, draw_curve, joined, runs, runs_of, threshold

from retrax.evaluation.suites import read_rows

HERE = Path(__file__).parent
COLUMNS = 4
LAST = 5  # evaluations, of the twenty of a run
WINDOW = 5  # rows of metrics.csv in a moving average
USUAL = {  # of Reactor's runs, but for what a row says in brackets
    "num_envs": "8",
    "selector": "contextual",
    "adam_b1": "0.0",
    "adam_epsilon": "1e-08",
    "acting_steps_per_update": "5.0",
}
CHANGES = {
    "adam_epsilon 1e-4": {"adam_epsilon": "0.0001"},
    "adam_b1 0.9": {"adam_b1": "0.9"},
    "acting_steps_per_update 2.5": {"acting_steps_per_update": "2.5"},
    "proportional": {"selector": "proportional"},
    "proportional, two environments": {"selector": "proportional", "num_envs": "2"},
}
CURES = {
    "a cost of what goes into tanh: 1e-3": "cost 1e-3",
    "1e-4": "cost 1e-4",
    "1e-5": "cost 1e-5",
}


def made() -> dict[tuple[str, str], list[Run]]:
    """The runs of each agent and environment, in order of seeds."""
    configs = {name: found[0].config for name, found in runs_of(HERE).items()}
    return {(of["agent"], of["environment"]): runs(HERE, name) for name, of in configs.items()}


def four_digits(values: Iterable[float]) -> str:
    """Numbers in a cell, one for each seed."""
    each = (np.format_float_positional(x, 4, fractional=False, trim="-") for x in values)
    return ", ".join(each)


def defaults(row: dict[str, str]) -> dict[str, str]:
    """Default presets."""
    chosen = made()[row["agent"], row["environment"]]
    goal = threshold(row["environment"])
    seconds = np.mean([run.curve["seconds"][-1] for run in chosen])
    computed = {
        "steps": f"{chosen[0].config['steps']:,}",
        "greedy return": four_digits(run.greedy for run in chosen),
        "goal": "" if goal is None else f"{goal:g}",
        "seconds": f"{seconds:.0f}",
    }
    if chosen[0].scores["greedy_arm"]:  # Agent57's
        computed["all episodes"] = four_digits(run.score for run in chosen)
    return computed


@functools.cache
def table(name: str) -> list[dict[str, str]]:
    """The rows of a CSV of this folder."""
    return read_rows(HERE / name)


def curves(name: str, chosen: Callable[[dict[str, str]], bool]) -> dict[int, list[float]]:
    """The evaluations of the chosen runs of a CSV, by seed."""
    found: dict[int, list[float]] = {}
    for row in table(name):
        if chosen(row):
            found.setdefault(int(row["seed"]), []).append(float(row["evaluation_return"]))
    return dict(sorted(found.items()))


def lowest(found: dict[int, list[float]]) -> list[float]:
    """The lowest of the last evaluations of each run."""
    return [min(values[-LAST:]) for values in found.values()]


def seeds(found: dict[int, list[float]]) -> str:
    """Seeds in a cell."""
    numbers = list(found)
    if len(numbers) > 3 and numbers == list(range(len(numbers))):
        return f"0 to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def reactor(row: dict[str, str]) -> dict[str, str]:
    """Reactor from evaluation to evaluation."""
    environment, _, change = row[""].partition(" (")
    wanted = USUAL | {"environment": environment, "run_steps": row["N"].replace(",", "")}
    wanted |= CHANGES[change.removesuffix(")")] if change else {}
    numbers = {key: float(row[key]) for key in ("learning_rate", "entropy_cost", "policy_epsilon")}
    found = curves(
        "reactor.csv",
        lambda run: (
            all(run[key] == value for key, value in wanted.items())
            and all(float(run[key]) == value for key, value in numbers.items())
        ),
    )
    return {
        "seeds": seeds(found),
        "last evaluation": joined((values[-1] for values in found.values()), ".3g"),
        "lowest": joined(lowest(found), ".3g"),
    }


def acer(environment: str, **wanted: str) -> dict[str, str]:
    """Runs of ACER with these values, and no other change."""
    found = curves(
        "stability.csv",
        lambda run: (
            run["environment"] == environment
            and not run["other changes"]
            and all(run[key] == value for key, value in wanted.items())
        ),
    )
    form = ".2f" if environment == "FrozenLake-v1" else ".0f"
    return {
        "last evaluation, by seed": joined((values[-1] for values in found.values()), form),
        "lowest, by seed": joined(lowest(found), form),
    }


def segments(row: dict[str, str]) -> dict[str, str]:
    """ACER with segments of different lengths."""
    rows = str(int(row["transitions of a segment"]) + 1)
    wanted = {"sequence_length": rows, "replay_ratio": row["replay_ratio"]}
    wanted |= {"evaluation acts with": "average policy", "rmsprop_epsilon": "1e-6"}
    return acer(row[""].partition(" (")[0], **wanted)


def average_policy(row: dict[str, str]) -> dict[str, str]:
    """ACER's average policy, and RMSProp's epsilon, with segments of 10 transitions."""
    ratio = "8" if row[""] == "Pendulum-v1" else "4"
    wanted = {key: row[key] for key in ("evaluation acts with", "rmsprop_epsilon")}
    return acer(row[""], sequence_length="11", replay_ratio=ratio, **wanted)


def d4pg(environment: str, cure: str, rates: str = "1e-3, 1e-3") -> dict[int, list[float]]:
    """Runs of D4PG with a cure for a policy at the bounds."""
    wanted = environment, CURES.get(cure, cure), rates
    both = "{policy_learning_rate}, {critic_learning_rate}"
    return curves(
        "bounds.csv", lambda run: (run["environment"], run["cure"], both.format(**run)) == wanted
    )


def bounds(row: dict[str, str]) -> dict[str, str]:
    """D4PG at the bounds of MountainCarContinuous."""
    rates = row["learning rates of policy and critic"]
    found = d4pg("MountainCarContinuous-v0", row["cure"], rates)
    return {"last evaluation, by seed": joined((values[-1] for values in found.values()), ".0f")}


def half_cheetah(row: dict[str, str]) -> dict[str, str]:
    """D4PG at the bounds of HalfCheetah."""
    if row["cure"].endswith(" *"):
        return {}
    cure, _, which = row["cure"].partition(",")
    found = d4pg("HalfCheetah-v5", cure)
    returns = {seed: values[-1] for seed, values in found.items()}
    if which.startswith(" commits"):
        three = made()["d4pg", "HalfCheetah-v5"]
        returns |= {run.seed: run.greedy for run in three}
    elif which:
        returns = {seed: returns[seed] for seed in range(3)}
    return {f"seed {seed}": f"{returns[seed]:.0f}" if seed in returns else "" for seed in range(5)}


def draw() -> None:
    """Draws the curves of all tasks."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    tasks = made()
    _, grid = plt.subplots(
        -(-len(tasks) // COLUMNS), COLUMNS, figsize=(14, 12), layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(tasks) :]:
        axes.axis("off")
    for axes, ((agent, environment), chosen) in zip(grid.flat, tasks.items(), strict=False):
        for run in chosen:
            draw_curve(axes, run, WINDOW, color="tab:blue", alpha=0.7, label="a seed, in training")
        goal = threshold(environment)
        if goal is not None:
            axes.axhline(goal, color="tab:grey", linestyle="--", label="goal")
        axes.set(title=f"{agent}, {environment}", xlabel="environment steps", ylabel="return")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        if not axes.lines:
            axes.axis("off")
            axes.text(0.5, 0.5, "no episode ended in training", ha="center")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    if len(tasks) < grid.size:
        by_label = dict(zip(labels, handles, strict=True))
        grid.flat[-1].legend(by_label.values(), by_label, loc="center")
    plt.savefig(HERE / "curves.png", dpi=60)
