"""Prints the table of this folder and draws its curves from runs/.

Usage, in the directory of the runs: python report.py OUTPUT.png. A curve is the mean return of
episodes of training in 40 equal parts of the run, averaged over the seeds; against time, that of
seed 0 alone, from the first update on. Intervals are those of the mean of the seeds' greedy
returns: 95 %, Student's t.
"""

import csv
import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from retrax.evaluation import mean_and_interval

PARTS = 40
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


def column(rows: list[dict[str, str]], name: str) -> np.ndarray:
    """Numbers of a column, NaN where it is empty."""
    return np.array([float(row.get(name) or "nan") for row in rows])


def read(run: Path) -> list[dict[str, str]]:
    """The rows of a run."""
    with open(run / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def binned(x: np.ndarray, y: np.ndarray, end: float) -> np.ndarray:
    """Means of y in equal parts of x up to `end`; NaN where there are none."""
    part = np.minimum((x / end * PARTS).astype(int), PARTS - 1)
    kept = ~np.isnan(y)
    count = np.bincount(part[kept], minlength=PARTS)
    total = np.bincount(part[kept], y[kept], minlength=PARTS)
    return np.divide(total, count, out=np.full(PARTS, np.nan), where=count > 0)


def main(output: str) -> None:
    """Prints and draws."""
    _, grid = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    print("| | seeds 0, 1, 2 | mean (95 %) | updates/s | staleness, updates | seconds |")
    print("|---|---|---|---|---|---|")
    for (agent, title), (by_steps, by_time) in zip(TITLES.items(), grid, strict=True):
        for side, name in SIDES.items():
            runs = sorted(Path("runs").glob(f"{agent}_{side}-[0-9]"))
            runs = [run for run in runs if (run / "evaluation.json").exists()]
            if not runs:
                continue
            returns = [
                json.loads((run / "evaluation.json").read_text())["mean_return"] for run in runs
            ]
            tables = [read(run) for run in runs]
            style = {"color": COLOURS[side], "label": name}
            style["linestyle"] = "--" if "momentum" in side else "-"
            end = column(tables[0], "steps")[-1]
            curves = [binned(column(t, "steps"), column(t, "episode_return"), end) for t in tables]
            by_steps.plot((np.arange(PARTS) + 0.5) * end / PARTS, np.nanmean(curves, 0), **style)
            first = tables[0]
            started = column(first, "seconds")[np.argmax(column(first, "updates") > 0)]
            seconds = column(first, "seconds") - started
            learning = seconds >= 0
            spent = seconds[-1]
            curve = binned(seconds[learning], column(first, "episode_return")[learning], spent)
            by_time.plot((np.arange(PARTS) + 0.5) * spent / PARTS, curve, **style)
            speed = np.ptp(column(first, "updates")[learning]) / spent
            stale = (
                np.nanmean(column(first, "gradient_staleness")) if "process" not in side else np.nan
            )
            mean, low, high = mean_and_interval(np.array(returns))[:3]
            digits = 2 if agent == "reactor" else 0
            each = ", ".join(f"{value:.{digits}f}" for value in returns)
            interval = f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
            staleness = "-" if np.isnan(stale) else f"{stale:.1f}"
            print(
                f"| {title}, {name} | {each} | {interval} | {speed:.0f} | {staleness} "
                f"| {spent:.0f} |"
            )
        by_steps.set(title=title, xlabel="environment steps", ylabel="return in training")
        by_time.set(title=f"{title}, seed 0", xlabel="seconds since the first update")
        by_steps.legend(fontsize="small")
    plt.savefig(output, dpi=70)


if __name__ == "__main__":
    main(sys.argv[1])
