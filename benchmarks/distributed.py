"""Speed of programs of processes, compared with the same agents in one process.

    python benchmarks/distributed.py [CASE ...] [--num-actors 2] [--num-envs 8]
                                     [--repeats 3] [--engine NAME[=PYTHON] ...] [--busy]

A case is one of those printed by --help, for instance `d4pg`; all of them without one. All sides
have as many environments. Rates are over the time in which the learner updates, without
compilation; medians, the sides in turn. The program runs with each engine that is given, by the
Python that is given with it: `--engine ray --engine launchpad=/path/to/python3.10`. With --busy, it
runs with the first one again, beside another process that keeps one core busy.
"""

import argparse
import contextlib
import csv
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import typing

from life_cycle import Program  # beside this file


class Case(typing.NamedTuple):
    """What is run, and the least ratio that we want."""

    agent: str
    environment: str
    steps: int
    least: float
    flags: tuple[str, ...] = ()


# Agent57 begins to learn 250 times as early, and its updates have an eighth of the preset's batch,
# eight times as often: a run of minutes has several, and replays as many rows for each step.
AGENT57_PONG = ("--agent.replay.min-rows", "2000", "--agent.replay.batch-size", "8")
AGENT57_PONG += ("--agent.replay.acting-steps-per-update", "1664")
AGENT57_PONG += ("--agent.replay.capacity", "100000")  # 5 million rows need 36 GB

CASES = {
    "reactor": Case("reactor", "catch", 20_000, 0.75),
    "acer": Case("acer", "CartPole-v1", 240_000, 0.75),  # 60,000 last for five seconds
    "d4pg": Case("d4pg", "Pendulum-v1", 40_000, 0.75),
    "agent57": Case("agent57", "deep_sea", 20_000, 0.75),
    "reactor_pong": Case("reactor", "ALE/Pong-v5", 20_000, 0.95),
    "acer_pong": Case("acer", "ALE/Pong-v5", 20_000, 0.95),
    "agent57_pong": Case("agent57", "ALE/Pong-v5", 20_000, 0.9, AGENT57_PONG),
}
TRAIN = "import sys; from retrax.command.main import main; sys.exit(main())"
LOGS = 100  # rows of metrics in a run
BUSY_LIMIT = 0.5  # of the speed without the other process


def read_rows(directory):
    with open(directory / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def learning_rows(directory):
    """The first row with updates, and the last before a program's final evaluation."""
    rows = [row for row in read_rows(directory) if int(row["updates"]) > 0]
    return rows[0], rows[-2]  # the last row is written after that evaluation


def rate(first, last, column):
    return (int(last[column]) - int(first[column])) / (
        float(last["seconds"]) - float(first["seconds"])
    )


def mean(directory, column):
    values = [float(row[column]) for row in read_rows(directory) if row.get(column)]
    return sum(values) / len(values) if values else float("nan")


def loopback_bytes(pid):
    """Bytes sent over the loopback of a process's network namespace."""
    for line in pathlib.Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == "lo":
            return int(fields.split()[0])
    return 0


def one_process(directory, case, options):
    """Runs `retrax train`."""
    agent, environment, steps, _, flags = CASES[case]
    command = [sys.executable, "-c", TRAIN]
    train = ["train", agent, "--environment", environment, "--plain"]
    train += ["--steps", str(options.steps or steps), "--num-envs", str(options.num_envs)]
    train += ["--run-directory", str(directory), "--log-every", str(log_every(options, steps))]
    subprocess.run([*command, *train, *flags], check=True, capture_output=True)


def program(directory, case, options, engine):
    """Runs the program; returns bytes per second between its processes."""
    agent, environment, steps, _, flags = CASES[case]
    name, _, python = engine.partition("=")
    running = Program(
        directory,
        *["--environment", environment, "--num-actors", options.num_actors],
        *["--num-envs", options.num_envs],
        *["--steps", options.steps or steps, "--log-every", log_every(options, steps)],
        *["--run-directory", directory, *(["--engine", name] if name else [])],
        *flags,
        agent=agent,
        python=python or sys.executable,
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


@contextlib.contextmanager
def another_process():
    """Keeps one core busy, at the usual priority."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def log_every(options, steps):
    return max(1, (options.steps or steps) // LOGS)


def compare(case, options):
    """Prints the medians of a case."""
    engines = options.engine or [""]
    titles = [
        f"program by {engine.partition('=')[0]}" if engine else "program" for engine in engines
    ]
    limits = {f"{title} / one process": CASES[case].least for title in titles}
    limits["beside another / "] = BUSY_LIMIT
    found = {}
    for repeat in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            sides = {name: pathlib.Path(folder, name) for name in ("one process", *titles)}
            one_process(sides["one process"], case, options)
            figures = {}
            for title, engine in zip(titles, engines, strict=True):
                sent = program(sides[title], case, options, engine)
                figures[f"{title}, between the processes, kB/s"] = sent / 1e3
                idle = mean(sides[title], "learner_idle_share")
                figures[f"{title}, share of the learner's time spent waiting"] = idle
                age = mean(sides[title], "parameter_staleness")
                figures[f"{title}, parameter age, updates"] = age
            pairs = [(title, "one process") for title in titles]
            pairs += [(titles[0], title) for title in titles[1:]]
            if options.busy:
                sides["beside another"] = pathlib.Path(folder, "busy")
                with another_process():
                    program(sides["beside another"], case, options, engines[0])
                pairs.append(("beside another", titles[0]))
            for name, directory in sides.items():
                for column in ("steps", "updates"):
                    figures[f"{name}, {column}/s"] = rate(*learning_rows(directory), column)
            for name, other in pairs:
                for column in ("steps", "updates"):
                    ratio = figures[f"{name}, {column}/s"] / figures[f"{other}, {column}/s"]
                    figures[f"{name} / {other}, {column}/s"] = ratio
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
        print(f"{case}, run {repeat + 1} of {options.repeats}", flush=True)
    for name, values in found.items():
        least = [limit for start, limit in limits.items() if name.startswith(start)]
        limit = f"   (limit: at least {least[0]})" if least else ""
        print(f"{case:<14}{name:<62}{statistics.median(values):>10.2f}{limit}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--num-actors", type=int, default=2)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--steps", type=int, help="instead of each case's own")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--engine", action="append", metavar="NAME[=PYTHON]", help="the default one if not given"
    )
    parser.add_argument(
        "--busy", action="store_true", help="and beside a process that burns a core"
    )
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such cases: {sorted(unknown)}, there are {list(CASES)}")
    for case in options.cases or CASES:
        compare(case, options)


if __name__ == "__main__":
    main()
