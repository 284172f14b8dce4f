"""Time to solve a task beside Stable Baselines 3 (PyTorch) and SBX (JAX), on the same machine.

    python benchmarks/peers.py DIRECTORY --peer PYTHON [--tasks cart-pole ...]
        [--sides acer sb3-ppo ...] [--seeds 3]

PYTHON is the interpreter of an environment of its own, with the peers:
`pip install stable-baselines3 sbx-rl gymnasium[mujoco]`. Runs take turns, task by task and seed by
seed, one at a time. Each that has ended is a row of DIRECTORY/peers.csv and is not repeated, so the
same command goes on where it was stopped.

A task is solved at the first moment at which the mean return of the last 20 training episodes, or a
few more, is at its threshold. Training episodes have the noise of exploration in them, D4PG's more
of it than others; so `evaluated` is the mean return of 20 episodes after learning, without it.
Seconds are those of learning, compilation included, imports and that evaluation not. The peers'
options are those of rl-baselines3-zoo (dqn.yml of commit ce95481, sac.yml of 00128b5).
"""

import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import sys
from typing import NamedTuple

WINDOW = 20
EVALUATED = 20
COLUMNS = (
    "task",
    "side",
    "seed",
    "steps",
    "seconds",
    "solved_steps",
    "solved_seconds",
    "last",
    "evaluated",
)
COMMAND = "import sys; from retrax.command.main import main; sys.exit(main())"
RUN_PEER = pathlib.Path(__file__).parent / "peers" / "sb3_run.py"
_DQN = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}
_PPO = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": ["linear", 1e-3],
    "clip_range": ["linear", 0.2],
}
_CHEETAH = {"learning_starts": 10_000}


class Peer(NamedTuple):
    """A run of another library."""

    module: str
    algorithm: str
    options: dict
    num_envs: int = 1


class Task(NamedTuple):
    """A task, the return that solves it, and who learns it."""

    environment: str
    threshold: float
    steps: int
    agents: tuple[str, ...]
    peers: dict[str, Peer]


TASKS = {
    "cart-pole": Task(
        "CartPole-v1",
        475.0,
        50_000,
        ("acer", "reactor"),
        {
            "sb3-dqn": Peer("stable_baselines3", "DQN", _DQN),
            "sbx-dqn": Peer("sbx", "DQN", _DQN),
            "sb3-ppo": Peer("stable_baselines3", "PPO", _PPO, num_envs=8),
        },
    ),
    "pendulum": Task(
        "Pendulum-v1",
        -200.0,
        20_000,
        ("d4pg", "acer"),
        {
            "sb3-sac": Peer("stable_baselines3", "SAC", {"learning_rate": 1e-3}),
            "sbx-sac": Peer("sbx", "SAC", {"learning_rate": 1e-3}),
        },
    ),
    # No return counts as solved after 100,000 steps: what is compared is the last mean.
    "half-cheetah": Task(
        "HalfCheetah-v5",
        4800.0,
        100_000,
        ("d4pg",),
        {
            "sb3-sac": Peer("stable_baselines3", "SAC", _CHEETAH),
            "sbx-sac": Peer("sbx", "SAC", _CHEETAH),
        },
    ),
}


def ours(agent, task, seed, run):
    """Rows of a run of ours: (steps, seconds, episodes, their mean return); its evaluation."""
    if not (run / "config.json").is_file():
        chosen = ["--environment", task.environment, "--steps", str(task.steps)]
        rest = ["--seed", str(seed), "--run-directory", str(run)]
        arguments = ["train", agent, *chosen, *rest, "--plain"]
    else:
        arguments = ["train", "--resume", str(run), "--plain"]
    _retrax(*arguments)
    curve, before = [], 0
    with (run / "metrics.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            episodes = int(row["episodes"])
            numbers = int(row["steps"]), float(row["seconds"]), episodes - before
            # A row in which no episode ended counts none, but its steps and seconds were used.
            curve.append((*numbers, float(row["episode_return"] or 0.0)))
            before = episodes
    evaluation = _retrax("evaluate", str(run), "--episodes", str(EVALUATED), "--json")
    return curve, json.loads(evaluation.stdout)["mean_return"]


def _retrax(*arguments):
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(command, check=True, capture_output=True)


def theirs(python, peer, task, seed):
    """The same of a peer, whose rows are single episodes."""
    given = {"environment": task.environment, "steps": task.steps, "seed": seed, **peer._asdict()}
    given["evaluated"] = EVALUATED
    result = subprocess.run(
        [python, str(RUN_PEER)], input=json.dumps(given), capture_output=True, text=True
    )
    if result.returncode:
        sys.exit(f"{peer.module} failed: {(result.stderr.strip() or 'no output').splitlines()[-1]}")
    *rows, evaluated = map(json.loads, result.stdout.splitlines())
    return [(steps, seconds, 1, value) for steps, seconds, value in rows], evaluated


def last_mean(curve):
    """Mean return of the last WINDOW episodes, or a few more; None if there were fewer."""
    count = total = 0
    for _, _, episodes, value in reversed(curve):
        count, total = count + episodes, total + episodes * value
        if count >= WINDOW:
            return total / count
    return None


def solved(curve, threshold):
    """Steps and seconds at which `last_mean` is first at the threshold; None, None if never."""
    for end in range(1, len(curve) + 1):
        mean = last_mean(curve[:end])
        if mean is not None and mean >= threshold:
            return curve[end - 1][:2]
    return None, None


def read(path):
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_missing(directory, python, tasks, sides, seeds):
    """Runs what has no row yet, and adds its row when it has ended."""
    path = directory / "peers.csv"
    rows = read(path)
    if rows and tuple(rows[0]) != COLUMNS:
        sys.exit(f"{path} has the columns {', '.join(rows[0])}, not {', '.join(COLUMNS)}.")
    done = {(row["task"], row["side"], row["seed"]) for row in rows}
    for name in tasks:
        task = TASKS[name]
        for seed in range(seeds):
            for side in (*task.agents, *task.peers):
                if side not in sides or (name, side, str(seed)) in done:
                    continue
                if side in task.agents:
                    curve, evaluated = ours(
                        side, task, seed, directory / "runs" / f"{name}-{side}-{seed}"
                    )
                else:
                    curve, evaluated = theirs(python, task.peers[side], task, seed)
                times = *curve[-1][:2], *solved(curve, task.threshold)
                values = *times, last_mean(curve), evaluated
                with path.open("a", newline="") as file:
                    writer = csv.writer(file, lineterminator="\n")
                    if not file.tell():
                        writer.writerow(COLUMNS)
                    writer.writerow([name, side, seed, *values])


def summary(rows):
    """Lines of a table: medians over seeds of those that solved, and the ratio to the fastest."""
    yield (
        "| task | side | seeds solved | steps | seconds | seconds / fastest | last mean return "
        "| evaluated | seconds of all steps |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for task in dict.fromkeys(row["task"] for row in rows):
        of_task = [row for row in rows if row["task"] == task]
        sides = {
            side: [row for row in of_task if row["side"] == side]
            for side in dict.fromkeys(row["side"] for row in of_task)
        }
        medians = {side: _median(found, "solved_seconds") for side, found in sides.items()}
        fastest = min((x for x in medians.values() if x is not None), default=None)
        for side, found in sides.items():
            steps, seconds = _median(found, "solved_steps"), medians[side]
            count = sum(bool(row["solved_seconds"]) for row in found)
            times = (
                ("", "", "")
                if seconds is None
                else (f"{steps:,.0f}", f"{seconds:,.1f}", f"{seconds / fastest:.2f}")
            )
            returns = (_median(found, column) for column in ("last", "evaluated"))
            cells = (
                task,
                side,
                f"{count} of {len(found)}",
                *times,
                *("" if value is None else f"{value:,.1f}" for value in returns),
                f"{_median(found, 'seconds'):,.0f}",
            )
            yield f"| {' | '.join(cells)} |"


def _median(rows, column):
    values = [float(row[column]) for row in rows if row[column]]
    return statistics.median(values) if values else None


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--peer", required=True, metavar="PYTHON", help="a Python with the peers")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    every = dict.fromkeys(side for task in TASKS.values() for side in (*task.agents, *task.peers))
    parser.add_argument("--sides", nargs="*", choices=every, default=list(every))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    options.directory.mkdir(parents=True, exist_ok=True)
    run_missing(options.directory, options.peer, options.tasks, options.sides, options.seeds)
    for line in summary(read(options.directory / "peers.csv")):
        print(line)


if __name__ == "__main__":
    main()
