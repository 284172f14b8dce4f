"""Golden runs: short runs of every agent, recorded to be compared bit for bit after a change.

    python tests/golden/golden.py record [TASK ...]    writes tests/golden/TASK.json
    python tests/golden/golden.py compare [TASK ...]   repeats the runs and prints what differs

A recording holds `metrics.csv` without the columns of wall-clock time, and for each array of the
final parameters a hash and its norm. Bits depend on the processor and on the versions of JAX and
NumPy, which `fingerprint` names: on another machine, record first, then change. As in all tests,
compilation is without most optimisations.
"""

import argparse
import csv
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
import orbax.checkpoint as ocp

import retrax
from retrax.runtime.metrics_writer import WALL_CLOCK_COLUMNS

FOLDER = Path(__file__).parent
TASKS = {
    "reactor": ("reactor", "catch", 1600),
    "acer": ("acer", "catch", 1200),
    "acer_continuous": ("acer", "Pendulum-v1", 1200),
    "d4pg": ("d4pg", "Pendulum-v1", 1600),
    "agent57": ("agent57", "deep_sea", 1400),
}
MODES = {
    "train": {},
    "sync": {"num_envs": 2, "num_actors": 2, "actor_update_period": 50},
}
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


def run(name: str, directory: Path) -> dict:
    """The recording of a run."""
    task, mode, seed = name.split("-")
    agent, environment, steps = TASKS[task]
    config = retrax.RunConfig(
        agent=agent,
        environment=environment,
        steps=steps,
        seed=int(seed),
        log_every=200,
        **MODES[mode],
    )
    retrax.train(config, directory, plain=True)
    return {
        "fingerprint": fingerprint(),
        "metrics": metrics(directory),
        "params": params(directory),
    }


def metrics(directory: Path) -> dict[str, list[str]]:
    with (directory / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {k: [row[k] for row in rows] for k in rows[0] if k not in WALL_CLOCK_COLUMNS}


def params(directory: Path) -> dict[str, list]:
    manager = ocp.CheckpointManager((directory / "snapshots").absolute())
    items = ocp.args.Composite(learner=ocp.args.StandardRestore())
    learner = manager.restore(manager.latest_step(), args=items)["learner"]["state"]
    manager.close()
    learner = learner.get("learner", learner)  # where rewards are scaled
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("tasks", nargs="*", help="beginnings of names: reactor, d4pg-sync")
    given = parser.parse_args()
    status = 0
    for name in NAMES:
        if given.tasks and not name.startswith(tuple(given.tasks)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = run(name, Path(folder) / "run")
        path = FOLDER / f"{name}.json"
        if given.command == "record":
            path.write_text(json.dumps(found, indent=0) + "\n")
            print(name, "recorded", flush=True)
            continue
        lines = differences(json.loads(path.read_text()), found)
        print(name, "differs:" if lines else "is equal", *lines, sep="\n  " if lines else " ")
        status = status or bool(lines)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
