"""Speed of a program of processes, compared with the same agent in one process.

    python benchmarks/distributed.py [--environment ALE/Pong-v5] [--steps 20000] [--num-actors 2]

Rates are over the time in which the learner updates, without compilation. Further arguments go to
both `retrax launch` and `retrax train`.
"""

import argparse
import csv
import pathlib
import subprocess
import sys
import tempfile
import time

from life_cycle import Program  # beside this file

RATIO_LIMIT = 0.7


def read_rows(directory):
    with open(directory / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def learning_rows(directory):
    """The first row with updates, and the last row."""
    rows = [row for row in read_rows(directory) if int(row["updates"]) > 0]
    return rows[0], rows[-1]


def rate(first, last, column):
    return (int(last[column]) - int(first[column])) / (
        float(last["seconds"]) - float(first["seconds"])
    )


def mean(directory, column):
    values = [float(row[column]) for row in read_rows(directory) if row[column]]
    return sum(values) / len(values) if values else float("nan")


def loopback_bytes(pid):
    """Bytes sent over the loopback of a process's network namespace."""
    for line in pathlib.Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == "lo":
            return int(fields.split()[0])
    return 0


def one_process(directory, arguments, options):
    command = [sys.executable, "-c", "from retrax.experiments.commands.main import main; main()"]
    train = ["train", "reactor", "--environment", arguments.environment, "--plain"]
    train += ["--steps", str(arguments.steps), "--num-envs", str(arguments.num_actors)]
    train += ["--run-directory", str(directory), "--log-every", str(arguments.log_every)]
    subprocess.run([*command, *train, *options], check=True, capture_output=True)


def program(directory, arguments, options):
    """Runs the program; returns bytes per second between its processes."""
    running = Program(
        directory,
        *["--environment", arguments.environment, "--num-actors", arguments.num_actors],
        *["--steps", arguments.steps, "--log-every", arguments.log_every],
        *["--run-directory", directory, *options],
    )
    running.wait_for("learning")
    pid = running.process.pid
    started, before = time.monotonic(), loopback_bytes(pid)
    seconds, after = 1e-9, before
    while running.process.poll() is None and running.status().get("phase") == "learning":
        time.sleep(0.2)
        seconds, after = time.monotonic() - started, loopback_bytes(pid)
    output, _ = running.process.communicate()
    if running.process.returncode:
        sys.exit(output)
    return (after - before) / seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", default="ALE/Pong-v5")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--num-actors", type=int, default=2)
    parser.add_argument("--log-every", type=int, default=200)
    arguments, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        alone, together = pathlib.Path(folder) / "alone", pathlib.Path(folder) / "together"
        one_process(alone, arguments, options)
        traffic = program(together, arguments, options)
        peer, ours = learning_rows(alone), learning_rows(together)
        ratio = rate(*ours, "updates") / rate(*peer, "updates")
        print(f"one process: {rate(*peer, 'updates'):.2f} updates/s")
        print(f"one process: {rate(*peer, 'steps'):.1f} steps/s")
        print(f"program: {rate(*ours, 'updates'):.2f} updates/s")
        print(f"program: {rate(*ours, 'steps'):.1f} actor steps/s")
        print(f"program / one process: {ratio:.2f} (limit: at least {RATIO_LIMIT})")
        idle = mean(together, "learner_idle_share")
        print(f"share of the learner's time spent waiting: {idle:.2f}")
        print(f"parameter age: {mean(together, 'parameter_staleness'):.1f} updates")
        print(f"between the processes: {traffic / 1e3:.0f} kB/s")


if __name__ == "__main__":
    main()
