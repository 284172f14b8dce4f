"""Puts run directories into a page of docs/results.

    python docs/results/collect.py PAGE RUNS [--also METRIC ...] [--every N]

RUNS is a folder of run directories NAME-SEED, also in folders of it (for `retrax benchmark`, `runs`
in its directory). They replace the runs of the same names and seeds in the page's curves.csv,
scores.csv and configs.json (see result_files.py); a run that has no `evaluation.json` has no score.
Numbers of curves have five digits. With `--every N`, N rows become one (see `merged`).
"""

import argparse
import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from result_files import FOLDER, rows_of

from retrax.evaluation.statistics import normalised
from retrax.evaluation.suites import Task, suites

METRICS = ("steps", "episodes", "updates", "seconds", "episode_return")
MODES = ("greedy_arm", "sampled_arm")  # of Agent57's evaluations
Row = dict[str, Any]


def name_of(path: Path, seed: int) -> str:
    """A run's name: that of its directory, without the seed where it ends in that."""
    return re.sub(rf"-{seed}$", "", path.as_posix())


def short(cell: str) -> str:
    """A number with five significant digits, if that is shorter; whole numbers as they are."""
    if not cell or cell.lstrip("-").isdigit():
        return cell
    return min(f"{float(cell):.5g}", cell, key=len)


def score_of(config: dict[str, Any], run: Path, last: Row, tasks: dict[str, Task]) -> Row:
    """A row of scores.csv after the run's name; `last` is the last row of metrics.csv."""
    found = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    task, score = tasks.get(config["environment"]), found["mean_return"]
    row = {
        "agent": config["agent"],
        "preset": config["preset"],
        "task": task.name if task else config["environment"],
        "seed": config["seed"],
        "steps": config["steps"],
        "updates": last["updates"],
        "seconds": round(float(last["seconds"]), 1),
        "episodes": found["episodes"],
        "score": score,
        "low": found["low"],
        "high": found["high"],
    }
    if task:
        row["normalised"] = normalised(score, task.low, task.high)
    modes = found.get("modes", {})
    return row | {mode: modes[mode]["mean_return"] for mode in MODES if mode in modes}


def write(path: Path, new: list[Row], replaced: set[tuple[str, str]]) -> None:
    """Writes a CSV: rows of other runs are kept, columns are those of all rows."""
    kept = [row for row in rows_of(path) if (row["run"], row["seed"]) not in replaced]
    rows = sorted([*kept, *new], key=lambda row: (row["run"], int(row["seed"])))  # stable
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if not rows:
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def write_configs(path: Path, new: dict[str, dict[str, Any]]) -> None:
    """Writes configs.json: a line for each config, with its runs."""
    compact = json.JSONEncoder(separators=(",", ":")).encode
    runs = dict(new)
    for each in json.loads(path.read_text(encoding="utf-8")) if path.is_file() else ():
        runs = dict.fromkeys(each["runs"], each["config"]) | runs
    by_config: dict[str, list[str]] = {}
    for name in sorted(runs):
        by_config.setdefault(compact(runs[name]), []).append(name)
    lines = (f'{{"runs":{compact(names)},"config":{c}}}' for c, names in by_config.items())
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def merged(rows: list[dict[str, str]], every: int) -> list[dict[str, str]]:
    """The last of each `every` rows, counted from the end, with the mean return of all episodes.

    Their seconds and updates are left out but for the run's last: the table of scores has them.
    """
    counts = np.diff([int(row["episodes"]) for row in rows], prepend=0)
    returns = np.array([float(row["episode_return"] or 0) for row in rows])
    found = []
    for end in range(len(rows), 0, -every):
        part = slice(max(end - every, 0), end)
        count = counts[part].sum()
        mean = str(returns[part] @ counts[part] / count) if count else ""
        last = {} if end == len(rows) else {"seconds": "", "updates": ""}
        found.append(rows[end - 1] | {"episode_return": mean} | last)
    return found[::-1]


def collect(page: Path, folder: Path, also: tuple[str, ...] = (), every: int = 1) -> None:
    """Puts the runs of a folder into a page."""
    suite = suites().get(page.name)
    tasks = {task.environment: task for task in suite.all_tasks} if suite else {}
    curves: list[Row] = []
    scores: list[Row] = []
    configs = {}
    for path in sorted(folder.rglob("config.json")):
        run, config = path.parent, json.loads(path.read_text(encoding="utf-8"))
        name = name_of(run.relative_to(folder), config["seed"])
        first = {"run": name, "seed": config["seed"]}
        rows = rows_of(run / "metrics.csv")
        kept = [
            column
            for column in rows[0]
            if column in (*METRICS, *also) or column.startswith("evaluation_return")
        ]
        merged_rows = rows if every == 1 else merged(rows, every)
        curves += [first | {column: short(row[column]) for column in kept} for row in merged_rows]
        if (run / "evaluation.json").is_file():
            scores.append({"run": name} | score_of(config, run, rows[-1], tasks))
        key = f"{name}-{config.pop('seed')}"
        config.pop("id", None)  # another one in each run
        configs[key] = config | ({"search_path": "."} if "search_path" in config else {})
    replaced = {(row["run"], str(row["seed"])) for row in curves}
    write(page / "curves.csv", curves, replaced)
    write(page / "scores.csv", scores, replaced)
    write_configs(page / "configs.json", configs)


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("page", metavar="PAGE", help="a folder of docs/results")
    parser.add_argument("runs", metavar="RUNS", type=Path, help="a folder of run directories")
    parser.add_argument("--also", metavar="METRIC", nargs="*", default=(), help="more columns")
    parser.add_argument("--every", metavar="N", type=int, default=1, help="rows for one in curves")
    options = parser.parse_args()
    collect(FOLDER / options.page, options.runs, tuple(options.also), options.every)


if __name__ == "__main__":
    main()
