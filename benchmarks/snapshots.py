"""Snapshots: seconds and bytes of a large replay, kills while one is written, bits, memory.

    python benchmarks/snapshots.py [store orbax kills flips memory] [--gigabytes G]

`orbax` is `store` with orbax-checkpoint, if it is installed, and checksums of its files. CPU
seconds are those of the process, user and system.
"""

import argparse
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil

from retrax.basics.checksums import check_manifest, write_manifest
from retrax.environments import make
from retrax.run_directory.snapshots import Snapshots
from retrax.runtime.learner import Snapshot

FRAMES = 4000  # different ones
FOREVER = """
import pathlib, sys
import numpy as np
from retrax.run_directory.snapshots import Snapshots, newest_snapshot
from retrax.runtime.learner import Snapshot
folder, rows = pathlib.Path(sys.argv[1]), np.arange(2.5e7)
snapshots, steps = Snapshots(folder, keep=2), newest_snapshot(folder) or 0
while True:
    steps += 1
    snapshots.save(steps, Snapshot({"w": rows[:9] + steps}, {"rows": rows}, {"steps": steps}))
    print("saved", flush=True)
"""


def frames():
    """Different frames of Pong."""
    environment = make("ALE/Pong-v5,frame_stack=1", num_envs=4)
    generator, seen = np.random.default_rng(0), [environment.reset().observation]
    for _ in range(FRAMES // 4):
        actions = generator.integers(environment.spec.actions.num_values, size=4, dtype=np.int32)
        seen.append(environment.step(actions).observation)
    return np.concatenate(seen)


def rings(gigabytes):
    """Rows of a store: views of one array, as of `RowRings`."""
    seen = frames()
    row = [("observation", "u1", seen.shape[1:]), ("reward", "f4"), ("mu", "f4", 6)]
    dtype = np.dtype(row, align=True)
    ring = np.zeros(int(gigabytes * 1e9) // dtype.itemsize, dtype)
    for begin in range(0, len(ring), len(seen)):
        ring["observation"][begin : begin + len(seen)] = seen[: len(ring) - begin]
    return {name: ring[name] for name in dtype.names}


def ours(folder):
    """How a snapshot is written and read."""
    snapshots = Snapshots(folder)
    like = {"w": np.zeros(9)}

    def write(rows):
        snapshots.save(1, Snapshot(like, {"rows": rows}, {"steps": 1}))

    def read():
        return Snapshots(folder).restore(like).replay["rows"]

    return write, read


def orbax(folder):
    """The same with orbax, and a manifest of checksums, as until version 0.2."""
    import orbax.checkpoint as ocp

    checkpointer = ocp.Checkpointer(ocp.CompositeCheckpointHandler())

    def write(rows):
        items = ocp.args.Composite(replay=ocp.args.StandardSave({"rows": rows}))
        checkpointer.save(folder / "1", args=items)
        write_manifest(folder / "1")

    def read():
        check_manifest(folder / "1")
        items = ocp.args.Composite(replay=ocp.args.StandardRestore())
        return checkpointer.restore(folder / "1", args=items)["replay"]["rows"]

    return write, read


def store(folder, gigabytes, form=ours):
    """Writes and reads the rows of a replay."""
    rows, (write, read) = rings(gigabytes), form(folder)
    yield "| form | what | CPU s | s | GB |"
    yield "|---|---|---|---|---|"
    for name, work in (("write", lambda: write(rows)), ("read", read)):
        process = psutil.Process()
        before, started = process.cpu_times(), time.monotonic()
        found = work()
        seconds, after = time.monotonic() - started, process.cpu_times()
        cpu = after.user + after.system - before.user - before.system
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e9
        yield f"| {form.__name__} | {name} | {cpu:.1f} | {seconds:.1f} | {size:.2f} |"
    assert all(np.array_equal(found[part], rows[part]) for part in rows)


def kills(folder, count):
    """Kills a process that does nothing but write snapshots of 0.2 GB, at random moments."""
    generator, whole, partial = random.Random(0), 0, 0
    for _ in range(count):
        command = [sys.executable, "-c", FOREVER, str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(generator.uniform(0.3, 2))
        process.kill()
        process.communicate()
        partial += any((folder / "snapshots").glob("*.partial"))
        snapshots = Snapshots(folder, writable=False)
        learner, counters = snapshots.restore_learner({"w": np.zeros(9)})
        is_right = np.array_equal(learner["w"], np.arange(9) + counters["steps"])
        whole += is_right and not snapshots.passed_over()
    yield f"{count} kills, {partial} of them while a file was written: {whole} times all were whole"


def flips(folder, count):
    """Flips one random bit of a snapshot: is it refused?"""
    snapshots = Snapshots(folder)
    rows = np.random.default_rng(0).random(100)
    snapshots.save(1, Snapshot({"w": rows}, {"rows": rows}, {"steps": 1}))
    path, found = snapshots.path(1), 0
    data = path.read_bytes()
    for bit in np.random.default_rng(0).integers(8 * len(data), size=count):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            Snapshots(folder, writable=False).restore({"w": rows})
        except ValueError as error:
            found += str(path) in str(error)
    yield f"{found} of {count} flipped bits in {len(data)} bytes are refused"


def memory(folder, count):
    """Resident memory over many snapshots of 30 arrays."""
    snapshots, process = Snapshots(folder, keep=2), psutil.Process()
    rows = {str(i): np.arange(1000.0) for i in range(30)}
    found = []
    for steps in range(count):
        snapshots.save(steps, Snapshot(rows, {"rows": rows}, {"steps": steps}))
        snapshots.restore(rows)
        found.append(process.memory_info().rss / 1e6)
    later = found[count // 7 :]
    slope = np.polyfit(np.arange(len(later)), later, 1)[0]
    yield f"{count} snapshots: {later[0]:.1f} to {later[-1]:.1f} MB, {slope:.4f} MB each"


SECTIONS = {
    "store": (store, None),
    "orbax": (lambda folder, size: store(folder, size, orbax), None),
    "kills": (kills, 20),
    "flips": (flips, 100),
    "memory": (memory, 700),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=["store", "kills", "flips", "memory"])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    given = parser.parse_args()
    for name in given.sections:
        section, count = SECTIONS[name]
        with tempfile.TemporaryDirectory() as temporary:
            print(f"\n## {name}\n", flush=True)
            for line in section(pathlib.Path(temporary), count or given.gigabytes):
                print(line, flush=True)
