"""How programs end when they are interrupted, terminated or killed: a table.

    python benchmarks/life_cycle.py [--interrupts 10] [--terminations 10] [--nodes 10] [--mains 5]

Each run is a program (Reactor on catch) that has started to learn. The signal is sent at a random
time within the next three seconds. An orphan is a process of the program that still exists 15
seconds after the end of the launcher.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import psutil

ORPHAN_SECONDS = 15
START_SECONDS = 240


class Program:
    """A running program, in a new session, as in a terminal."""

    def __init__(self, directory, *options, agent="reactor", folder=None, python=sys.executable):
        self.directory = directory
        command = [python, "-m", "retrax.launchpad_programs", agent, "--plain"]
        self.process = subprocess.Popen(
            [*command, *map(str, options)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def end(self, timeout=300, status=0):
        """What it has printed when it ends with an exit status."""
        try:
            output, _ = self.process.communicate(timeout=timeout)
        finally:
            self.process.kill()
        assert self.process.returncode == status, output
        return output

    def status(self):
        path = self.directory / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def wait_for(self, phase):
        deadline = time.monotonic() + START_SECONDS
        while self.status().get("phase") != phase:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"it did not reach {phase}: {self.process.communicate()[0]}")
            time.sleep(0.1)

    def nodes(self):
        """Dictionary from node (`actor/0` ...) to process, found by the name of its log file."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        logs, names = self.directory.absolute() / "logs", {}
        for child in children:
            with contextlib.suppress(OSError):  # it may have ended
                log = pathlib.Path(os.readlink(f"/proc/{child.pid}/fd/1"))
                if log.is_relative_to(logs):  # Ray has processes of its own
                    names[str(log.relative_to(logs))] = child
        return names


def interrupt(program, rng):
    os.killpg(program.process.pid, signal.SIGINT)
    return ""


def terminate(program, rng):
    program.process.terminate()
    return ""


def kill_node(program, rng):
    name, node = rng.choice(sorted(program.nodes().items()))
    node.kill()
    return name


def kill_main(program, rng):
    program.process.kill()
    return ""


def run(act, rng, options):
    """Killed node, exit status, seconds to the end, orphans, steps of the newest snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder) / "run"
        arguments = ["--environment", "catch", "--num-actors", 2, "--steps", 10**7]
        program = Program(directory, *arguments, "--run-directory", directory, *options)
        program.wait_for("learning")
        time.sleep(rng.uniform(0, 3))
        nodes = list(program.nodes().values())
        started = time.monotonic()
        what = act(program, rng)
        program.process.communicate(timeout=120)
        seconds = time.monotonic() - started
        _, left = psutil.wait_procs(nodes, timeout=ORPHAN_SECONDS)
        for process in left:
            process.kill()
        snapshots = [int(p.stem) for p in (directory / "snapshots").glob("*.npz")]
        return what, program.process.returncode, seconds, len(left), max(snapshots, default=None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--interrupts", type=int, default=10)
    parser.add_argument("--terminations", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--mains", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments, options = parser.parse_known_args()
    rng = random.Random(arguments.seed)
    acts = {
        "SIGINT": (interrupt, arguments.interrupts),
        "SIGTERM": (terminate, arguments.terminations),
        "kill -9 of a node": (kill_node, arguments.nodes),
        "kill -9 of main": (kill_main, arguments.mains),
    }
    print("| what | n | exit status | seconds, at most | snapshots | orphans | killed |")
    print("|---|---|---|---|---|---|---|")
    for name, (act, count) in acts.items():
        ends = [run(act, rng, options) for _ in range(count)]
        if not ends:
            continue
        killed = collections.Counter(end[0].partition("/")[0] for end in ends if end[0])
        statuses = ", ".join(
            f"{k} x {v}" for k, v in collections.Counter(e[1] for e in ends).items()
        )
        print(
            f"| {name} | {count} | {statuses} | {max(end[2] for end in ends):.1f} | "
            f"{sum(end[4] is not None for end in ends)} | {sum(end[3] for end in ends)} | "
            f"{', '.join(f'{k} x {v}' for k, v in sorted(killed.items()))} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
