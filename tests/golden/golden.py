"""Golden runs: short runs of every agent, recorded to be compared after a change.

    python tests/golden/golden.py record [TASK ...]    writes tests/golden/TASK.json
    python tests/golden/golden.py compare [TASK ...]   repeats the runs and prints what differs

A recording holds `metrics.csv` without the columns of wall-clock time, and for each array of the
final parameters a hash and its norm. Bits depend on the processor and on the versions of JAX and
NumPy, which `fingerprint` names. Where they are those of the recording, whole runs are compared bit
for bit; elsewhere the rows up to the first with updates, within `TOLERANCE`, which sees a learning
rate or a discount that changed by 1 %. So on another machine, record first, then refactor. As in
all tests, compilation is without most optimisations.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # JAX reads it when it is imported

import jax
import numpy as np

import retrax
from retrax.agents import d4pg, reactor
from retrax.evaluation.suites import read_rows
from retrax.training.recorder import WALL_CLOCK_COLUMNS
from retrax.training.snapshots import newest_snapshot, read_state

FOLDER = Path(__file__).parent
TASKS = {
    "reactor": ("reactor", "catch", 1600),
    "acer": ("acer", "catch", 1200),
    "acer_continuous": ("acer", "Pendulum-v1", 1200),
    "d4pg": ("d4pg", "Pendulum-v1", 1600),
    "agent57": ("agent57", "deep_sea", 1400),
}
_SMALL = d4pg.Config.small()
# The replay's size when it was recorded: a tree of another size draws other sequences.
_REPLAY = dataclasses.replace(_SMALL.replay, capacity=100_000)
CONFIGS = {"d4pg": dataclasses.replace(_SMALL, replay=_REPLAY), "reactor": reactor.Config.small()}
MODES = {"train": {}, "sync": {"num_envs": 2, "num_actors": 2, "actor_update_period": 50}}
# Largest relative difference of a row with the first 20 to 30 updates: 1e-7 between two processors,
# 4e-4 between JAX 0.6.2 and 0.12. Rounding grows with the updates: to 0.2 after 200 of them.
TOLERANCE = 1e-3
# The share of importance ratios below 1: in data on policy they are 1 but for rounding.
ROUNDING = ("cut_traces",)
NAMES = [f"{task}-{mode}-{seed}" for task in TASKS for mode in MODES for seed in (0, 1)]


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name, family, model and stepping, and a hash of the instruction sets.

    The name alone is not enough: virtual machines call several generations "AMD EPYC", and XLA
    compiles other instructions for each of them.
    """
    if not cpuinfo.exists():
        return platform.processor() or platform.machine()
    first = cpuinfo.read_text().split("\n\n")[0].splitlines()
    fields = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in first)}
    flags = " ".join(sorted(fields.get("flags", "").split()))
    numbers = "-".join(fields.get(key, "") for key in ("cpu family", "model", "stepping"))
    name = fields.get("model name", platform.machine())
    return f"{name} {numbers} {hashlib.sha256(flags.encode()).hexdigest()[:8]}"


def fingerprint() -> str:
    """What the bits depend on."""
    unoptimised = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")
    return f"{processor()}, JAX {jax.__version__}, NumPy {np.__version__}, -O{unoptimised}"


def compare(old: dict, name: str, directory: Path) -> list[str]:
    """Repeats a recorded run, as far as it can be compared; returns what differs."""
    if old["fingerprint"] == fingerprint():
        return differences(old, run(name, directory))
    row = first_row(old)
    found = run(name, directory, steps=int(old["metrics"]["steps"][row]))
    return deviations(old, found)


def first_row(recording: dict) -> int:
    """The index of the first row with updates."""
    return [int(updates) > 0 for updates in recording["metrics"]["updates"]].index(True)


def run(name: str, directory: Path, steps: int | None = None) -> dict:
    """The recording of a run, or of its first steps."""
    task, mode, seed = name.split("-")
    agent, environment, all_steps = TASKS[task]
    config = retrax.RunConfig(
        agent=agent,
        environment=environment,
        steps=steps or all_steps,
        seed=int(seed),
        log_every=200,
        evaluate_every=0,
        agent_config=CONFIGS.get(task),
        **MODES[mode],
    )
    retrax.train(config, directory, plain=True)
    return {
        "fingerprint": fingerprint(),
        "metrics": metrics(directory),
        "params": params(directory),
    }


def metrics(directory: Path) -> dict[str, list[str]]:
    rows = read_rows(directory / "metrics.csv")
    return {k: [row[k] for row in rows] for k in rows[0] if k not in WALL_CLOCK_COLUMNS}


def params(directory: Path) -> dict[str, list]:
    path = directory / "snapshots" / f"{newest_snapshot(directory)}.npz"
    learner = read_state(path, {"learner": None})["learner"]
    while "learner" in learner:  # where rewards are scaled, or parameters averaged
        learner = learner["learner"]
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(learner["params"]):
        leaf = np.asarray(leaf)
        digest = hashlib.sha256(leaf.tobytes()).hexdigest()[:16]
        norm = float(np.linalg.norm(leaf.astype(np.float64)))
        found[jax.tree_util.keystr(path)] = [digest, norm]
    return found


def differences(old: dict, new: dict) -> list[str]:
    """Columns and arrays that differ, a line each."""
    lines = [f"column {k} only in one" for k in old["metrics"].keys() ^ new["metrics"].keys()]
    for name in old["metrics"].keys() & new["metrics"].keys():
        if old["metrics"][name] != new["metrics"][name]:
            lines.append(f"column {name}: {old['metrics'][name][-1]} -> {new['metrics'][name][-1]}")
    for name in old["params"].keys() | new["params"].keys():
        if old["params"].get(name, [""])[0] != new["params"].get(name, [""])[0]:
            lines.append(f"parameters {name}")
    return sorted(lines)


def deviations(old: dict, new: dict) -> list[str]:
    """Columns that differ beyond `TOLERANCE` in a row up to the first with updates, a line each."""
    lines = [f"column {k} only in one" for k in old["metrics"].keys() ^ new["metrics"].keys()]
    for row in range(first_row(old) + 1):
        for name in sorted(old["metrics"].keys() & new["metrics"].keys() - set(ROUNDING)):
            one, other = (x["metrics"][name][row] for x in (old, new))
            if one != other and not np.isclose(
                float(other or "nan"), float(one or "nan"), TOLERANCE, 0
            ):
                lines.append(f"row {row}, column {name}: {one} -> {other}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("tasks", nargs="*", help="beginnings of names: reactor, d4pg-sync")
    given = parser.parse_args()
    status = 0
    for name in NAMES:
        if given.tasks and not name.startswith(tuple(given.tasks)):
            continue
        path = FOLDER / f"{name}.json"
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder) / "run"
            if given.command == "record":
                path.write_text(json.dumps(run(name, directory), indent=0) + "\n")
                print(name, "recorded", flush=True)
                continue
            lines = compare(json.loads(path.read_text()), name, directory)
        print(name, "differs:" if lines else "is equal", *lines, sep="\n  " if lines else " ")
        status = status or bool(lines)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
