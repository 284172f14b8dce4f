"""Whether stopped and killed runs are those that were never stopped: tables.

    python benchmarks/exact_resume.py [resume] [kills] [--agents ...] [--environments ...]

`resume` stops each agent in each environment at a random step and resumes it. `kills` kills it
(`kill -9`) at random moments until it has come to its end. Both compare the snapshot and
metrics.csv with those of a run that was never stopped. Combinations that an agent refuses are left
out. The exit status is the number of runs that differ although no new episodes were announced.
"""

import argparse
import csv
import dataclasses
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax

import retrax
from retrax.training.assembly import checked_agent, spec_of
from retrax.training.recorder import WALL_CLOCK_COLUMNS
from retrax.training.snapshots import Snapshots, newest_snapshot, read_state

AGENTS = "reactor acer d4pg agent57"
ENVIRONMENTS = (
    "catch noisy_deep_sea,size=6 CartPole-v1 FrozenLake-v1 Pendulum-v1 Hopper-v5 "
    "dm_control:reacher/easy ALE/Pong-v5"
)
QUIET = subprocess.DEVNULL
TRAIN = "import sys; from retrax.command.main import main; sys.exit(main())"


def config_of(given: argparse.Namespace, agent: str, environment: str) -> retrax.RunConfig:
    """A run that learns early; `ValueError` if the agent refuses the environment."""
    steps, names = given.steps, {"agent": agent, "environment": environment, "seed": given.seed}
    every = {"snapshot_every": max(steps // 5, 1), "log_every": max(steps // 9, 1)}
    every["evaluate_every"] = max(steps // 2, 1)  # by default it depends on the steps of the run
    config = retrax.RunConfig(**names, **every, steps=steps, num_envs=2)
    spec = spec_of(config)
    config = config.resolve(spec)
    small = {"min_rows": steps // 6, "batch_size": 2, "capacity": 2 * steps}
    replay = dataclasses.replace(config.replay, **small)
    settings = dataclasses.replace(config.agent_config, replay=replay)
    config = dataclasses.replace(config, agent_config=settings)
    checked_agent(config, spec)
    return config


def outcome(directory: Path) -> dict[str, object]:
    """The newest snapshot, array by array, and metrics.csv without the times."""
    snapshots = Snapshots(directory)
    newest = snapshots.find()
    found: dict[str, object] = {"steps": newest}
    templates = dict.fromkeys(("learner", "replay", "actors"))
    parts = read_state(snapshots.path(newest), templates)
    for path, leaf in jax.tree_util.tree_flatten_with_path(parts)[0]:
        found[jax.tree_util.keystr(path)] = leaf.tobytes()
    with (directory / "metrics.csv").open() as file:
        for row in csv.DictReader(file):
            found[f"row {row['steps']}"] = [row[k] for k in row if k not in WALL_CLOCK_COLUMNS]
    return found


def differs(config: retrax.RunConfig, whole: Path, parts: Path, done: str) -> bool:
    """Prints how a run in parts ended; returns whether it should not have ended so."""
    one, other = outcome(whole), outcome(parts)
    count = sum(one.get(name) != other.get(name) for name in one | other)
    new = (parts / "log.txt").read_text().count("begin new episodes")
    ending = f"{count} of {len(one)} differ" if count else "equal"
    note = f", new episodes {new} times" if new else ""
    print(f"{config.environment:24} {config.agent:10} {done:28} {ending}{note}", flush=True)
    return count > 0 and not new


def resume(config: retrax.RunConfig, folder: Path, whole: Path, generator: random.Random) -> bool:
    at = generator.randrange(config.steps // 3, config.steps)
    retrax.train(dataclasses.replace(config, steps=at), folder, plain=True)
    retrax.train(config, folder, resume=True, plain=True)
    return differs(config, whole, folder, f"stopped at {at} steps")


def kills(config: retrax.RunConfig, folder: Path, whole: Path, generator: random.Random) -> bool:
    retrax.train(dataclasses.replace(config, steps=config.snapshot_every), folder, plain=True)
    command = [sys.executable, "-c", TRAIN, "train", "--resume", folder, "--steps", config.steps]
    count, status = 0, -9
    while status == -9 and newest_snapshot(folder) < config.steps:
        before = newest_snapshot(folder)
        process = subprocess.Popen(list(map(str, command)), stdout=QUIET, stderr=QUIET)
        while process.poll() is None and newest_snapshot(folder) == before:
            time.sleep(0.01)
        time.sleep(generator.uniform(0, 0.3))
        process.kill()
        status = process.wait()
        count += status == -9
    failed = status not in (0, -9)
    return differs(config, whole, folder, f"killed {count} times, status {status}") or failed


SECTIONS: dict[str, Callable[..., bool]] = {"resume": resume, "kills": kills}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", default=["resume"], choices=SECTIONS)
    parser.add_argument("--agents", nargs="+", default=AGENTS.split())
    parser.add_argument("--environments", nargs="+", default=ENVIRONMENTS.split())
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given, failed = parser.parse_args(), 0
    for environment in given.environments:
        for agent in given.agents:
            try:
                config = config_of(given, agent, environment)
            except ValueError:
                continue
            with tempfile.TemporaryDirectory() as folder:
                whole = Path(folder) / "whole"
                retrax.train(config, whole, plain=True)
                for name in given.sections:
                    generator = random.Random(given.seed)
                    failed += SECTIONS[name](config, Path(folder) / name, whole, generator)
    return failed


if __name__ == "__main__":
    sys.exit(main())
