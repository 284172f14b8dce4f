"""What runs survive: damaged files, other processes, long times. Prints tables.

    python benchmarks/abuse.py [flips two_at_once soak ...] [--count N]

Each section is a function of SECTIONS, which takes a folder and how often to try, and yields lines.
Stopped and killed runs are those of exact_resume.py.
"""

import argparse
import collections
import contextlib
import io
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil

import retrax
from retrax.command.main import main
from retrax.training.assembly import open_snapshots
from retrax.training.snapshots import newest_snapshot

# The smallest agent that still has all its parts.
TINY = (
    "train reactor --environment catch --plain --num-envs 4 --agent.replay.min-rows 40 "
    "--agent.replay.batch-size 2 --agent.replay.capacity 400 --agent.memory-size 4 "
    "--agent.shared-size 4 --agent.head-size 4 --agent.num-atoms 5 --agent.sequence-length 4 "
    "--agent.vector-sizes 4"
)
COMMAND = "import sys; from retrax.command.main import main; sys.exit(main())"


def train(directory, steps):
    """A finished run of the tiny agent, with snapshots at a third, two thirds and the end."""
    options = ["--steps", steps, "--snapshot-every", steps // 3, "--keep-snapshots", 3]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main([*TINY.split(), *map(str, options), "--run-directory", str(directory)]) == 0


def is_refused(path, read):
    """Whether reading raises a ValueError of one sentence that names the file."""
    try:
        read()
    except ValueError as error:
        return str(path) in str(error) and "\n" not in str(error)
    return False


def goes_back(path, run, steps):
    """Whether a resumed run continues at an older snapshot, and names the file."""
    snapshots, notes = open_snapshots(run)
    return snapshots.newest_whole() == steps and any(str(path) in note for note in notes)


def flips(folder, count):
    """Flips one random bit of the newest snapshot: who notices?"""
    run, random = folder / "run", np.random.default_rng(0)
    train(run, 240)
    path, found = run / "snapshots" / "240.npz", collections.Counter()
    data = path.read_bytes()
    for bit in random.integers(8 * len(data), size=count):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        found["--resume goes back"] += goes_back(path, run, 160)
        found["evaluate refuses"] += is_refused(path, lambda: retrax.load_agent(run))
    yield f"| flips | {' | '.join(found)} |"
    yield "|---|---|---|"
    yield f"| {count} | {' | '.join(map(str, found.values()))} |"


def two_at_once(folder, count):
    """Starts two runs in one directory at the same time: one must run, one must be refused."""
    found = collections.Counter()
    for index in range(count):
        directory = folder / str(index)
        command = [sys.executable, "-c", COMMAND, *TINY.split(), "--steps", "80"]
        both = [
            subprocess.Popen(
                [*command, "--run-directory", str(directory)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        ends = []
        for process in both:
            _, err = process.communicate()
            reason = re.search(r"is in use by process|holds this run already", err)
            ends.append(f"{process.returncode} {reason[0] if reason else ''}".strip())
        found[" and ".join(sorted(ends))] += 1
    yield "| exit statuses | times |"
    yield "|---|---|"
    yield from (f"| {ends} | {times} |" for ends, times in found.most_common())


def soak(folder, minutes):
    """Trains for some minutes with a snapshot every few seconds: does its memory grow?"""
    command = [*TINY.split(), "--steps", "1000000000", "--snapshot-every", "1000"]
    command = [sys.executable, "-c", COMMAND, *command, "--run-directory", str(folder / "run")]
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started, found = time.monotonic(), {}
    while (elapsed := (time.monotonic() - started) / 60) < minutes:
        time.sleep(1)
        newest = newest_snapshot(folder / "run")
        if newest is not None and elapsed > minutes / 10:  # caches fill in the beginning
            found.setdefault(newest, (elapsed, process.memory_info().rss / 1e6))
    process.send_signal(signal.SIGINT)
    status = process.wait(60)
    at, rss = np.array(sorted(found.values())).T
    slope = np.polyfit(at, rss, 1)[0]
    yield "| minutes | steps | snapshots watched | MB, first and last | MB in 30 minutes | exit |"
    yield "|---|---|---|---|---|---|"
    cells = minutes, max(found), len(found), f"{rss[0]:.1f}, {rss[-1]:.1f}", f"{30 * slope:.2f}"
    yield f"| {' | '.join(map(str, cells))} | {status} |"


SECTIONS = {"flips": (flips, 100), "two_at_once": (two_at_once, 20), "soak": (soak, 30)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--count", type=int, help="tries, or minutes of the soak; each has its own")
    given = parser.parse_args()
    for name in given.sections or SECTIONS:
        section, count = SECTIONS[name]
        with tempfile.TemporaryDirectory() as temporary:
            print(f"\n## {name}\n", flush=True)
            for line in section(pathlib.Path(temporary), given.count or count):
                print(line, flush=True)
