"""Snapshots: seconds and bytes of a large replay, kills while one is written, bits, memory.

    python benchmarks/snapshots.py [store orbax kills flips memory] [--gigabytes G]

With --gigabytes, `kills` and `flips` are of a snapshot of as many frames as `store` has. `orbax` is
`store` with orbax-checkpoint, if it is installed, and checksums of its files. CPU seconds are those
of the process, user and system.
"""

import argparse
import os
import pathlib
import random
import signal
import tempfile
import time

import numpy as np
import psutil

from retrax.basics.files import check_manifest, write_manifest
from retrax.environments import make
from retrax.training.learner import Snapshot
from retrax.training.snapshots import Snapshots

FRAMES = 4000  # different ones


def frames():
    """Different frames of Pong."""
    environment = make("ALE/Pong-v5,frame_stack=1", num_envs=4)
    generator, seen = np.random.default_rng(0), [environment.reset().observation]
    for _ in range(FRAMES // 4):
        actions = generator.integers(environment.spec.actions.num_values, size=4, dtype=np.int32)
        seen.append(environment.step(actions).observation)
    return np.concatenate(seen)


def rings(gigabytes):
    """Rows of a store: views of one array, like those of `LocalReplay`."""
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
        return Snapshots(folder).read(1, learner=like, replay=None).replay["rows"]

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
    """Writes and reads the rows of a replay, which are in memory once only."""
    write, read = form(folder)
    yield "| form | what | CPU s | s | GB |"
    yield "|---|---|---|---|---|"
    rows = rings(gigabytes)
    for name in ("write", "read"):
        process = psutil.Process()
        before, started = process.cpu_times(), time.monotonic()
        rows = write(rows) if name == "write" else read()
        seconds, after = time.monotonic() - started, process.cpu_times()
        cpu = after.user + after.system - before.user - before.system
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e9
        yield f"| {form.__name__} | {name} | {cpu:.1f} | {seconds:.1f} | {size:.2f} |"
    seen, found = frames(), rows.pop("observation")
    for begin in range(0, len(found), len(seen)):
        some = found[begin : begin + len(seen)]
        assert np.array_equal(some, seen[: len(some)])
    assert not any(part.any() for part in rows.values())


def write_forever(folder, rows):
    """A process that does nothing but write snapshots: its id."""
    process = os.fork()
    if process:
        return process
    snapshots = Snapshots(folder, keep=2)
    steps = snapshots.find()
    while True:
        steps += 1
        snapshots.save(steps, Snapshot({"w": np.arange(9) + steps}, rows, {"steps": steps}))


def kills(folder, count, gigabytes):
    """Kills such a process at random moments, in the time of two snapshots."""
    rows = rings(gigabytes) if gigabytes else {"rows": np.arange(2.5e7)}  # 0.2 GB
    generator, whole, partial, started = random.Random(0), 0, 0, time.monotonic()
    Snapshots(folder).save(1, Snapshot({"w": np.arange(9) + 1}, rows, {"steps": 1}))
    seconds = time.monotonic() - started
    for _ in range(count):
        process = write_forever(folder, rows)
        time.sleep(generator.uniform(0, 2 * seconds))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        partial += any((folder / "snapshots").glob("*.partial"))
        snapshots = Snapshots(folder)
        found = snapshots.read(snapshots.find(), learner={"w": np.zeros(9, int)})
        is_right = np.array_equal(found.learner["w"], np.arange(9) + found.counters["steps"])
        whole += is_right and not snapshots.passed_over()
    yield f"{count} kills, {partial} of them while a file was written: {whole} times all were whole"


def flips(folder, count, gigabytes):
    """Flips one random bit of a snapshot: is it refused?"""
    snapshots, learner = Snapshots(folder), {"w": np.random.default_rng(0).random(100)}
    rows = rings(gigabytes) if gigabytes else learner
    snapshots.save(1, Snapshot(learner, rows, {"steps": 1}))
    path, found = snapshots.path(1), 0
    size = path.stat().st_size
    for bit in np.random.default_rng(0).integers(8 * size, size=count):
        flip(path, int(bit))
        try:
            Snapshots(folder).read(1, learner=learner)
        except ValueError as error:
            found += str(path) in str(error)
        flip(path, int(bit))
    yield f"{found} of {count} flipped bits in {size} bytes are refused"


def flip(path, bit):
    """Flips a bit of a file; flipping it again restores the file."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def memory(folder, count):
    """Resident memory over many snapshots of 30 arrays."""
    snapshots, process = Snapshots(folder, keep=2), psutil.Process()
    rows = {str(i): np.arange(1000.0) for i in range(30)}
    found = []
    for steps in range(count):
        snapshots.save(steps, Snapshot(rows, {"rows": rows}, {"steps": steps}))
        snapshots.read(steps, learner=rows, replay=None)
        found.append(process.memory_info().rss / 1e6)
    later = found[count // 7 :]
    slope = np.polyfit(np.arange(len(later)), later, 1)[0]
    yield f"{count} snapshots: {later[0]:.1f} to {later[-1]:.1f} MB, {slope:.4f} MB each"


SECTIONS = {
    "store": lambda folder, size: store(folder, size or 2.0),
    "orbax": lambda folder, size: store(folder, size or 2.0, orbax),
    "kills": lambda folder, size: kills(folder, 20, size),
    "flips": lambda folder, size: flips(folder, 100, size),
    "memory": lambda folder, size: memory(folder, 700),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=["store", "kills", "flips", "memory"])
    parser.add_argument("--gigabytes", type=float, help="2 for the store if not given")
    given = parser.parse_args()
    for name in given.sections:
        with tempfile.TemporaryDirectory() as temporary:
            print(f"\n## {name}\n", flush=True)
            for line in SECTIONS[name](pathlib.Path(temporary), given.gigabytes):
                print(line, flush=True)
