"""The computed cells of this page: `python docs/results/result_tables.py agent57_exploration`."""

import functools
import re
import statistics
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from result_files import Run, joined, runs_of

from retrax.evaluation.suites import read_rows

HERE = Path(__file__).parent
KNOWN, SOLVED = 0.7, 0.9  # returns on deep_sea: the way is known; 0.99 is the optimum
VISITS = {"no visit": 0, "1 to 2": 1, "3 to 10": 3, "11 to 30": 11, "31 to 100": 31, "more": 101}
DEEP_SEA = {  # names of runs, by what a row begins with after the size
    "small": "agent57",
    "small of commit a20dbbf": "stored",
    "that with": "cumulative",
    "--preset small_r2d2_retrace": "r2d2_retrace",
}
COIN = {
    "small_ngu": "ngu_0.3",
    "small_split": "split_0.3",
    "small_meta_controller": "meta_controller_0.3",
    "small (Agent57)": "agent57_0.3",
}
ACROBOT = {
    "small_r2d2_retrace": {"trace_length": 10},
    "small": {},
    "small, recomputed rewards": {"intrinsic_rewards": "recomputed"},
    "small of commit a8472f8 and later, 120,000 steps": {
        "intrinsic_rewards": "recomputed",
        "evaluation_average_decay": 0.995,
    },
}
ACROBOT["small_long, 120,000 steps"] = ACROBOT["small of commit a8472f8 and later, 120,000 steps"]
USUAL = {
    "torso_size": 64,
    "lstm_size": 32,
    "head_size": 64,
    "capacity": 5000,
    "batch_size": 32,
    "priority_exponent": 0.5,
    "target_update_period": 10,
    "learning_rate": 1e-3,
    "trace_length": 20,
    "evaluation_average_decay": 0.0,
    "intrinsic_rewards": "stored",
}


@functools.cache
def table(name: str) -> list[dict[str, str]]:
    """The rows of a CSV of this folder."""
    return read_rows(HERE / f"{name}.csv")


def steps(values: Iterable[str | int | None]) -> str:
    """Steps in a cell, one for each seed; "-" where there are none."""
    return ", ".join(f"{int(value):,}" if value else "-" for value in values)


def novelty(row: dict[str, str]) -> dict[str, str]:
    """Alpha by visits, after 6,000 steps: the mean over seeds."""
    rate, window = row["learning rate, window"].split(", ")
    wanted = float(rate), 10**9 if window.startswith("none") else int(window), 6000
    rows = [
        each
        for each in table("novelty")
        if (float(each["learning_rate"]), int(each["window"]), int(each["steps"])) == wanted
    ]
    of = {least: [] for least in VISITS.values()}
    for each in rows:
        of[int(each["least_visits"])].append(float(each["alpha"]))
    return {title: f"{statistics.mean(of[least]):.1f}" for title, least in VISITS.items()}


def first(run: Run, column: str, least: float) -> int | None:
    """Steps of the first row of a curve whose value is at least so much."""
    reached = run.curve["steps"][run.curve[column] >= least]
    return int(reached[0]) if reached.size else None


def deep_sea_runs(name: str, size: str) -> dict[str, str]:
    """Steps until a training episode found the treasure, and until the greedy arm solves it."""
    found = runs_of(HERE)[f"{name}_{size}"]
    solved = [first(run, "evaluation_return_greedy_arm", SOLVED) for run in found]
    middle = statistics.median(each or 10**9 for each in solved)
    return {
        "found, seeds 0 to 4": steps(first(run, "episode_return", 1e-6) for run in found),
        "solved, seeds 0 to 4": steps(solved),
        "median": "-" if middle == 10**9 else f"{middle:,.0f}",
    }


def deep_sea(row: dict[str, str]) -> dict[str, str]:
    """Sizes 10 and 20."""
    size, label = row[""].removeprefix("size ").split(", ", 1)
    label = label.partition(", which")[0].partition(" (")[0]
    label = "that with" if label.startswith("that with") else label
    return deep_sea_runs(DEEP_SEA[label], size)


def twenty(row: dict[str, str]) -> dict[str, str]:
    """The share of the seeds 20 to 39 that solved size 10, with Wilson's interval."""
    until = int(row["size 10, within"].replace(",", "").removesuffix(" steps"))
    found = runs_of(HERE)["twenty_10"]
    n, reached = len(found), [first(run, "evaluation_return_greedy_arm", SOLVED) for run in found]
    treasures = [first(run, "episode_return", 1e-6) for run in found]
    solved = sum(step is not None and step <= until for step in reached)
    share, z = solved / n, statistics.NormalDist().inv_cdf(0.975)
    middle, half = share + z**2 / (2 * n), z * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    low, high = ((middle + sign * half) / (1 + z**2 / n) for sign in (-1, 1))
    return {
        "treasure found": f"{sum(s is not None and s <= until for s in treasures)} of {n}",
        "solved": f"{solved} of {n}",
        "share (95 %)": f"{share:.2f} ({low:.2f} to {high:.2f})",
    }


def kept(row: dict[str, str]) -> dict[str, str]:
    """Size 20: evaluations after the one that solved it."""
    cells = []
    for run in runs_of(HERE)[f"{DEEP_SEA[row['size 20']]}_20"]:
        returns = run.curve["evaluation_return_greedy_arm"]
        returns = returns[~np.isnan(returns)]
        solved = np.flatnonzero(returns >= SOLVED)
        after = returns[solved[0] + 1 :] if solved.size else None
        cells.append("-" if after is None else f"{np.sum(after >= KNOWN)} of {len(after)}")
    return {"0.7 or more after it was solved, seeds 0 to 4": ", ".join(cells)}


def ladder(row: dict[str, str]) -> dict[str, str]:
    """Size 12."""
    preset = row["rung (preset)"]
    computed = deep_sea_runs("agent57" if preset == "small" else preset[len("small_") :], "12")
    return {key: computed[key] for key in computed if key != "median"}


def sizes(row: dict[str, str]) -> dict[str, str]:
    """Episodes until the average regret is below 0.9."""

    def cell(name: str, seeds: int) -> str:
        found = ["not run"] * seeds
        for run in table(name):
            if run["size"] == row["size"]:
                unsolved = f"- ({int(run['steps']) // int(run['size']):,})"
                solved = run["solved_episodes"]
                found[int(run["seed"])] = f"{int(solved):,}" if solved else unsolved
        return ", ".join(found)

    if row["size"].endswith(" *"):
        return {}
    return {
        "episodes, seed 0": cell("sizes", 1),
        "before, seeds 0 and 1": cell("sizes_before", 2),
        "uniform play, first treasure": f"{2 ** int(row['size']):,}",
    }


def stochastic(row: dict[str, str]) -> dict[str, str]:
    """Treasures that bsuite recorded up to an episode."""
    capacity = row["replay"].partition(" rows")[0].replace(",", "")
    found = {
        r["episode"]: r["treasures"]
        for r in table("deep_sea_stochastic")
        if r["capacity"] == capacity
    }
    columns = ["treasures in 400 episodes", *(f"in {n},000" for n in (3, 5, 6, 10))]
    return {c: found.get(re.sub(r"\D", "", c), "not run") for c in columns}


def random_coin(row: dict[str, str]) -> dict[str, str]:
    """Updates, and those from which on the last three evaluations have 0.9 in the mean."""
    label, _, change = row["preset, flags"].partition(", ")
    name = COIN.get(label, label.removeprefix("small_"))
    name = f"{name.removesuffix('_0.3')}_ngu_discounts" if change else name
    rows = [each for each in table("random_coin") if each["run"] == f"{name}-0"]
    returns = [float(each["evaluation_return"]) for each in rows]
    good = [i for i in range(2, len(rows)) if statistics.mean(returns[i - 2 : i + 1]) >= SOLVED]
    (run,) = runs_of(HERE)[f"random_coin_{name}"]
    return {
        "steps": f"{run.config['steps']:,}",
        "updates": f"{int(rows[-1]['updates']):,}",
        "of arm 0": f"{int(rows[-1]['updates_of_arm_0']):,}",
        "from 0.9 on (arm 0's updates)": steps([rows[good[0]]["updates_of_arm_0"] if good else ""]),
    }


def disco_maze(row: dict[str, str]) -> dict[str, str]:
    """Cells of an episode at the end of a run, of its most curious arm and of arm 0."""
    if row["preset"].endswith(" *"):
        return {}
    preset = row["preset"].partition(" (")[0]
    rung = "agent57" if preset == "small" else preset.removeprefix("small_")
    rung = {"ngu, image, 2e-3": "ngu_pixels"}.get(rung, rung)
    rows = {each["arm"]: each for each in table("disco_maze") if each["rung"] == rung}
    curious = {key: float(value) for key, value in rows[max(rows)].items() if key != "rung"}
    zero = {key: float(value) for key, value in rows["0"].items() if key != "rung"}
    return {
        "cells visited at the end (95 %)": "{cells:.1f} ({low:.1f} to {high:.1f})".format(
            **curious
        ),
        "steps of an episode": f"{curious['length']:.1f}",
        "the same, arm 0": "{cells:.1f} cells, {length:.1f} steps".format(**zero)
        if len(rows) > 1
        else "",
    }


def explored_runs(**wanted: str) -> dict[str, str]:
    """Steps until the treasure is found, and in brackets those of the runs."""
    computed = {}
    for size in ("10", "20"):
        wanted["size"] = size
        rows = [r for r in table("explored") if all(r[key] == wanted[key] for key in wanted)]
        rows.sort(key=lambda r: int(r["seed"]))
        seeds = [r["seed"] for r in rows]
        lengths = ", ".join(f"{int(n):,}" for n in dict.fromkeys(r["steps"] for r in rows))
        which = "" if seeds == [str(i) for i in range(len(rows))] else f"seeds {', '.join(seeds)}; "
        found = steps(r["first_found"] for r in rows)
        computed[f"size {size}"] = f"{found} ({which}{lengths})" if rows else ""
    return computed


def explored(row: dict[str, str]) -> dict[str, str]:
    """What bounded it."""
    keys = ("auxiliary_learning_rate", "capacity", "priority_exponent")
    return explored_runs(other="", **{key: row[key].replace(",", "") for key in keys})


def recomputed(row: dict[str, str]) -> dict[str, str]:
    """The same with recomputed rewards."""
    if row["capacity"].endswith(" *"):
        return {}
    usual = {"auxiliary_learning_rate": "1e-4", "priority_exponent": "0.5", "other": "recomputed"}
    return explored_runs(capacity=row["capacity"].replace(",", ""), **usual)


def arms(row: dict[str, str]) -> dict[str, str]:
    """The share of evaluations with 0.7 or more, after the first in which an arm had 0.9."""
    seed = row["size 20"].removeprefix("seed ")
    names = [f"arm{j}" for j in range(8)]
    rows = [r for r in table("arms") if (r["task"], r["seed"]) == ("deep_sea 20", seed)]
    returns = np.array([[float(r[name]) for name in names] for r in rows])
    chosen = np.array([float(r[f"arm{r['chosen']}"]) for r in rows])
    after = np.flatnonzero((returns >= SOLVED).any(axis=1))[0] + 1
    good = returns[after:] >= KNOWN
    titles = ["arm 0", *map(str, range(1, 8))]
    shares = dict(zip(titles, good.mean(axis=0), strict=True))
    shares |= {"chosen": (chosen[after:] >= KNOWN).mean(), "any arm": good.any(axis=1).mean()}
    return {"evaluations": str(len(good))} | {key: f"{x:.2f}" for key, x in shares.items()}


def acrobot(row: dict[str, str]) -> dict[str, str]:
    """Evaluations after 30,000 steps."""
    preset = row["preset"] if row["preset"] == "small_r2d2_retrace" else "small"
    wanted = {"preset": preset} | USUAL | ACROBOT[row["preset"]]
    for key, value in re.findall(r"(\w+) (\d[\d,.]*(?:e-\d)?)(?=[,) ])", row["change"] + ","):
        wanted[key] = float(value.rstrip(",").replace(",", ""))
    wanted.pop("replay_period", None)
    end = 120_000 if "120,000" in row["preset"] else 60_000
    found = [acrobot_run(wanted, seed, end) for seed in row["seed"].split(", ")]
    return {
        "mean": joined(map(statistics.mean, found), ".0f"),
        "-150 or more": ", ".join(f"{sum(x >= -150 for x in r)} of {len(r)}" for r in found),
        "last": joined((returns[-1] for returns in found), ".0f"),
    }


def acrobot_run(wanted: dict, seed: str, end: int) -> list[float]:
    """The evaluations of a run after 30,000 steps, up to an end; a run begins where steps fall."""
    runs: list[list[tuple[int, float]]] = []
    for row in table("acrobot"):
        same = all(
            row[key] == value if isinstance(value, str) else float(row[key]) == value
            for key, value in wanted.items()
        )
        if same and row["seed"] == seed:
            if not runs or int(row["steps"]) < runs[-1][-1][0]:
                runs.append([])
            runs[-1].append((int(row["steps"]), float(row["evaluation_return"])))
    runs.sort(key=lambda run: abs(run[-1][0] - end))
    return [value for at, value in runs[0] if 30_000 < at <= end + 8]


def tried(row: dict[str, str]) -> dict[str, str]:
    """What was tried before."""
    change = row["change"].replace("exponent ", "actor_epsilon_exponent=")
    change = change.replace("no rescaling", "rescale=False")
    change = re.sub(
        r"\b(kernel_epsilon|auxiliary_learning_rate|target_update_period|acting_steps_per_update) ",
        r"\1=",
        change,
    )
    key = change.replace(",", ""), row["seed"]
    (found,) = [each for each in table("tried") if (each["change"], each["seed"]) == key]
    return {
        "steps": f"{int(found['steps']):,}",
        "treasures found": found["found"],
        **{name: found[name] for name in ("cells", "diagonal", "solved")},
    }
