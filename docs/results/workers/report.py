"""The computed cells and the curves of this page: `python docs/results/result_tables.py workers`.

Updates/s, staleness and seconds are of seed 0, from the first update on. Intervals are those of the
mean of the seeds' greedy returns: 95 %, Student's t. `--draw` draws curves.png: a curve is the mean
return of training episodes in 40 equal parts of the run, averaged over the seeds; against time,
that of seed 0 alone.
"""

from pathlib import Path

import numpy as np
from result_files import Run, joined, runs, with_interval

from retrax.evaluation.statistics import moving_average

HERE = Path(__file__).parent
PARTS = 40
WINDOW, LEARNED = 5, 0.5  # rows of metrics.csv, and their mean return on catch
TITLES = {"acer": "ACER, CartPole-v1", "reactor": "Reactor, catch"}
SIDES = {
    "process": "one process",
    "1": "1 worker",
    "2": "2 workers",
    "4": "4 workers",
    "8": "8 workers",
    "momentum_process": "one process, momentum 0.9",
    "momentum_4": "4 workers, momentum 0.9",
    "momentum_8": "8 workers, momentum 0.9",
}
COLOURS = dict(zip(SIDES, ["black", "C0", "C1", "C2", "C3", "black", "C2", "C3"], strict=True))


def since_learning(run: Run) -> dict[str, np.ndarray]:
    """The rows from the first update on; seconds begin there."""
    metrics = run.curve
    first = np.argmax(metrics["updates"] > 0)
    later = {name: values[first:] for name, values in metrics.items()}
    return {**later, "seconds": later["seconds"] - later["seconds"][0]}


def workers(row: dict[str, str]) -> dict[str, str]:
    """An agent, alone or with workers."""
    (agent,) = [name for name, title in TITLES.items() if row[""].startswith(f"{title}, ")]
    name = row[""].removeprefix(f"{TITLES[agent]}, ")
    (side,) = [each for each, title in SIDES.items() if title == name]
    chosen = runs(HERE, f"{agent}_{side}")
    returns = [run.score for run in chosen]
    form = ".2f" if agent == "reactor" else ".0f"
    first = since_learning(chosen[0])
    staleness = chosen[0].curve["gradient_staleness"]
    return {
        "seeds 0, 1, 2": joined(returns, form),
        "mean (95 %)": with_interval(returns, form),
        "updates/s": f"{np.ptp(first['updates']) / first['seconds'][-1]:.0f}",
        "staleness, updates": "-" if "process" in side else f"{np.nanmean(staleness):.1f}",
        "seconds": f"{first['seconds'][-1]:.0f}",
    }


def steps_to_learn(run: Run) -> float:
    """Steps until the mean return of a window of rows is high enough."""
    metrics = run.curve
    known = ~np.isnan(metrics["episode_return"])
    means = moving_average(metrics["episode_return"][known], WINDOW)[WINDOW - 1 :]
    return metrics["steps"][known][WINDOW - 1 :][np.argmax(means >= LEARNED)]


def momentum(row: dict[str, str]) -> dict[str, str]:
    """Steps that Reactor needs on catch, with and without momentum."""
    side = "process" if row[""] == "one process" else row[""].partition(" ")[0]
    computed, means = {}, []
    for column, name in (("momentum 0", side), ("momentum 0.9", f"momentum_{side}")):
        found = [steps_to_learn(run) for run in runs(HERE, f"reactor_{name}")]
        computed[column] = joined(found, ",.0f")
        means.append(np.mean(found))
        computed["mean 0" if column == "momentum 0" else "mean 0.9"] = f"{means[-1]:,.0f}"
    return {**computed, "ratio": f"{means[1] / means[0]:.2f}"}


def binned(x: np.ndarray, y: np.ndarray, end: float) -> np.ndarray:
    """Means of y in equal parts of x up to `end`; NaN where there are none."""
    part = np.minimum((x / end * PARTS).astype(int), PARTS - 1)
    kept = ~np.isnan(y)
    count = np.bincount(part[kept], minlength=PARTS)
    total = np.bincount(part[kept], y[kept], minlength=PARTS)
    return np.divide(total, count, out=np.full(PARTS, np.nan), where=count > 0)


def draw() -> None:
    """Draws the curves against steps and against time."""
    import matplotlib.pyplot as plt

    _, grid = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    middle = (np.arange(PARTS) + 0.5) / PARTS
    for (agent, title), (by_steps, by_time) in zip(TITLES.items(), grid, strict=True):
        for side, name in SIDES.items():
            chosen = runs(HERE, f"{agent}_{side}")
            if not chosen:
                continue
            style = {"color": COLOURS[side], "label": name}
            style["linestyle"] = "--" if "momentum" in side else "-"
            tables = [run.curve for run in chosen]
            end = tables[0]["steps"][-1]
            curves = [binned(table["steps"], table["episode_return"], end) for table in tables]
            by_steps.plot(middle * end, np.nanmean(curves, 0), **style)
            first = since_learning(chosen[0])
            spent = first["seconds"][-1]
            curve = binned(first["seconds"], first["episode_return"], spent)
            by_time.plot(middle * spent, curve, **style)
        by_steps.set(title=title, xlabel="environment steps", ylabel="return in training")
        by_time.set(title=f"{title}, seed 0", xlabel="seconds since the first update")
        by_steps.legend(fontsize="small")
    plt.savefig(HERE / "curves.png", dpi=70)
