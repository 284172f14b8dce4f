"""What a program under Ray outlives: kills a node every few seconds while it trains.

    python benchmarks/chaos.py [--each 3] [--kinds actor learner ...] [--seconds 8] [--seed 0]
                               [--agent reactor] [--workers] [OPTION ...]

OPTIONs are those of `retrax launch`. With --workers, the program has two workers around a
parameter server instead of two actors. A kill is SIGKILL. Nodes are killed from the first update to
the last step, each kind --each times, in a random order. A node is back when another process has
its log, and has reported that it works, if it reports. A snapshot is lost if no snapshot
was seen between two multiples of --snapshot-every. An orphan is a process of the program that still
exists 15 seconds after the end of the launcher; a leftover is a file or folder in its temporary
folder.
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import random
import tempfile
import time

import psutil
from life_cycle import ORPHAN_SECONDS, Program  # beside this file

KINDS = ("actor", "counter", "evaluator", "learner", "replay")
WORKERS_KINDS = ("counter", "evaluator", "parameter_server", "worker")
TWO_ACTORS = ["--num-actors", 2]
TWO_WORKERS = ["--num-workers", 2]
STARTING = ("compiling", "waiting for the learner")
POLL_SECONDS = 0.1


class Watch:
    """What was seen of a program while it ran."""

    def __init__(self, program):
        self.program = program
        self.processes, self.snapshots, self.open_sockets = set(), set(), set()

    def look(self):
        main = psutil.Process(self.program.process.pid)
        children = main.children(recursive=True)
        for process in {main, *children} - self.processes:
            self.open_sockets |= sockets_beyond_loopback(process)
        self.processes |= set(children)
        folder = self.program.directory / "snapshots"
        self.snapshots |= {int(path.stem) for path in folder.glob("*.npz")}

    def wait(self, seconds):
        """Looks from time to time; whether the program still takes steps."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.program.process.poll() is not None:
                return False
            self.look()
            time.sleep(POLL_SECONDS)
        return self.program.status().get("phase") in ("collecting", "learning")


def sockets_beyond_loopback(process):
    """Sockets on which a process listens and that another host, or namespace, could reach."""
    try:
        if os.readlink(f"/proc/{process.pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            return set()  # of the program alone
        found = process.net_connections("inet")
    except (OSError, psutil.Error):
        return set()
    return {
        (c.laddr.ip, c.laddr.port)
        for c in found
        if c.status == psutil.CONN_LISTEN and not is_loopback(c.laddr.ip)
    }


def is_loopback(address):
    return address == "::1" or address.removeprefix("::ffff:").startswith("127.")


def kill_one(program, watch, kind, rng):
    """Kills a node of a kind, and waits until another process takes its place: the seconds."""
    while not (nodes := {n: p for n, p in program.nodes().items() if n.startswith(f"{kind}/")}):
        time.sleep(POLL_SECONDS)
    name, killed = rng.choice(sorted(nodes.items()))
    life = newest_life(program, name)
    killed.kill()
    started = time.monotonic()
    while program.process.poll() is None and not is_back(program, name, killed, life):
        watch.look()
        time.sleep(POLL_SECONDS)
    return time.monotonic() - started


def newest_life(program, name):
    """Restarts of a node before its newest report."""
    return program.status().get("leases", {}).get(name, [0])[0]


def is_back(program, name, killed, life):
    values = program.status().get("nodes", {}).get(name)
    is_silent = newest_life(program, name) == life
    if values is not None and (is_silent or values["state"] in STARTING):  # it reports
        return False
    return program.nodes().get(name, killed) != killed


def run(arguments, options, rng):
    """Trains a program and kills its nodes; the lines of the table."""
    killed, kept = collections.defaultdict(list), tempfile.gettempdir()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short name, for Ray's sockets
        os.environ["TMPDIR"] = str(pathlib.Path(folder) / "t")
        os.mkdir(os.environ["TMPDIR"])
        directory = pathlib.Path(folder) / "run"
        program = Program(
            directory,
            *["--environment", "catch", "--steps", arguments.steps],
            *(TWO_WORKERS if arguments.workers else TWO_ACTORS),
            *["--snapshot-every", arguments.snapshot_every, "--run-directory", directory],
            *["--engine", "ray", "--max-failures", 10**6, *options],
            agent=arguments.agent,
        )
        program.wait_for("learning")
        watch = Watch(program)
        kinds = arguments.kinds * arguments.each
        rng.shuffle(kinds)
        while kinds and watch.wait(arguments.seconds):
            kind = kinds.pop()
            killed[kind].append(kill_one(program, watch, kind, rng))
        while watch.wait(1.0) or program.process.poll() is None:
            pass
        output, _ = program.process.communicate()
        _, left = psutil.wait_procs(watch.processes, timeout=ORPHAN_SECONDS)
        for process in left:
            process.kill()
        leftovers = os.listdir(os.environ["TMPDIR"])
        os.environ["TMPDIR"] = kept
        if program.process.returncode or arguments.log:
            print(output)
        return table(arguments, program, watch, killed, left, leftovers)


def table(arguments, program, watch, killed, left, leftovers):
    path = program.directory / "metrics.csv"
    rows = list(csv.DictReader(path.open(newline=""))) if path.exists() else []
    last = rows[-1] if rows else {}
    restarts = program.directory / "restarts.json"
    every, steps = arguments.snapshot_every, int(last.get("steps") or 0)
    whole = {saved // every for saved in watch.snapshots}
    return {
        **{
            f"{kind} killed": f"{len(seconds)} times, back after "
            f"{', '.join(f'{second:.1f}' for second in seconds)} s"
            for kind, seconds in sorted(killed.items())
        },
        "exit status": program.process.returncode,
        "restarts": json.loads(restarts.read_text()) if restarts.exists() else {},
        "steps": f"{steps} of {arguments.steps}",
        "snapshots lost": f"{len(set(range(1, steps // every + 1)) - whole)} of {steps // every}",
        "orphans": len(left),
        "leftovers": leftovers,
        "sockets beyond loopback": len(watch.open_sockets),
        "final return": last.get("evaluator_return"),
        "seconds": last.get("seconds"),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=3)
    parser.add_argument("--kinds", nargs="*")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--snapshot-every", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--agent", default="reactor")
    parser.add_argument("--workers", action="store_true")
    parser.add_argument("--log", action="store_true")
    arguments, options = parser.parse_known_args()
    arguments.kinds = arguments.kinds or list(WORKERS_KINDS if arguments.workers else KINDS)
    found = run(arguments, options, random.Random(arguments.seed))
    print("| what | |\n|---|---|")
    for name, value in found.items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
