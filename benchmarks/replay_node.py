"""Sequences read and rows written per second through a replay node, and its memory.

    python benchmarks/replay_node.py [--selector proportional] [--seconds 3] [--stopped 30]

With Ray each side is a process: an actor, the replay, and the learner. Without (`--direct`) all are
objects of this process. Figures:
  * sequences/s: of 6 rows, 158 bytes a row, in batches of 64, priorities included;
  * rows/s: of an actor with four environments;
  * MB/s: of batches of 16 sequences of 33 frames, 84 x 84, stacks of 4 as a learner sees them;
  * growth of the memory of each process while the learner is stopped (SIGSTOP) and the actor writes
    as fast as it can.
"""

import argparse
import contextlib
import functools
import itertools
import os
import signal
import statistics
import threading
import time

import jax
import numpy as np
from dm_env import specs

try:
    import ray
except ImportError:  # `--direct` needs none
    ray = None

from retrax.datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from retrax.replay import DirectPeer, LocalReplay, NodeWriter, RemoteReplay
from retrax.replay.interface import never
from retrax.replay.node import ReplayNode

FLOAT = jax.ShapeDtypeStruct((), np.float32)
VECTORS = EnvironmentSpec(
    specs.Array((22,), np.float32), specs.BoundedArray((6,), np.float32, -1.0, 1.0)
)
SHORT = SequenceSpec(
    length=6,
    extras={
        "mu": jax.ShapeDtypeStruct((6,), np.float32),
        "value": FLOAT,
        "advantage": FLOAT,
        "log_prob": FLOAT,
    },
)
FRAMES = EnvironmentSpec(specs.Array((84, 84, 1), np.uint8), specs.DiscreteArray(6))
LONG = SequenceSpec(length=33, frame_stack=4, extras={"mu": jax.ShapeDtypeStruct((6,), np.float32)})
SHORT_BATCH, LONG_BATCH = 64, 16
READ_LIMIT, WRITTEN_LIMIT, FRAMES_LIMIT = 40_000, 15_000, 400
NEVER_WAIT = 1e9  # a ratio of steps to updates, and a lead, at which no writer waits
OFTEN = 0.01  # a ratio of steps to updates at which no reader waits
THREADS = 12  # of the replay's process
MAX_LEAD = 1000


class Spec:
    """One kind of rows, and a replay of them."""

    def __init__(self, environment, sequence, batch, options, steps_per_update, max_lead):
        self.environment, self.sequence, self.max_lead = environment, sequence, max_lead
        self.num_envs = options.environments
        self.config = ReplayConfig(
            selector=options.selector,
            capacity=options.rows,
            min_rows=options.rows // 2,
            batch_size=batch,
            acting_steps_per_update=steps_per_update,
        )

    def rows(self, count):
        """Rows `[E, ...]` with random numbers, of episodes that begin and end together."""
        rng, size = np.random.default_rng(0), self.num_envs
        shape = self.environment.observations.shape

        def values(spec, *axes):
            if spec.dtype == np.uint8:
                return rng.integers(256, size=(size, *axes), dtype=np.uint8)
            return rng.normal(size=(size, *axes)).astype(spec.dtype)

        for number in range(count):
            yield Row(
                observation=values(self.environment.observations, *shape),
                reward=values(FLOAT),
                discount=np.ones(size, np.float32),
                is_first=np.full(size, number == 0),
                is_last=np.zeros(size, bool),
                action=values(self.environment.actions, *self.environment.actions.shape),
                extras={name: values(x, *x.shape) for name, x in self.sequence.extras.items()},
            )

    def node(self):
        local = LocalReplay(
            self.environment, self.sequence, self.config, num_envs=self.num_envs, seed=0
        )
        return ReplayNode(local, max_lead=self.max_lead, restarts=0)

    def writer(self, peer):
        numbers = range(self.num_envs)
        spec, sequence = self.environment, self.sequence
        return NodeWriter(peer, spec, sequence, environments=numbers, stop=never)

    def replay(self, peer, ahead):
        return RemoteReplay(
            peer, self.environment, self.sequence, self.config, num_envs=self.num_envs, ahead=ahead
        )


class Acting:
    """An actor that only writes."""

    def __init__(self, spec, connect):
        self._spec = spec
        self._writer = spec.writer(connect())

    def fill(self, count):
        """Writes so many rows; that of the next episode when the last one begins."""
        for row in self._spec.rows(count):
            self._writer.write(row)
        self._writer.close()

    def write(self, seconds):
        """Rows per second."""
        rows = list(self._spec.rows(200))
        started, count = time.perf_counter(), 0
        for row in itertools.cycle(rows):
            self._writer.write(row)
            count += self._spec.num_envs
            if (elapsed := time.perf_counter() - started) >= seconds:
                return count / elapsed
        raise AssertionError


class Learning:
    """A learner that only draws, and sets priorities."""

    def __init__(self, spec, connect, ahead):
        self._replay = spec.replay(connect(), ahead)

    def read(self, seconds):
        """Batches, and bytes of observations, per second."""
        started, batches, size = time.perf_counter(), 0, 0
        while (elapsed := time.perf_counter() - started) < seconds or not batches:
            draw = self._replay.sample(60.0)
            self._replay.set_priorities(draw.keys, np.ones(len(draw.sample.weights)))
            batches += 1
            size += draw.sample.rows.observation.nbytes
        return batches / elapsed, size / elapsed


class Host:
    """A part of the program in a process of its own."""

    def __init__(self, make, *arguments):
        self._part = make(*arguments)

    def call(self, method, *arguments):
        return getattr(self._part, method)(*arguments)

    def pid(self):
        return os.getpid()


def ray_peer(name):
    """The engine's peer; made where it is used, as it has a stop event."""
    from retrax.launchpad_programs.engines.ray import RayPeer

    return RayPeer(name, threading.Event())


class Direct:
    """Parts that are objects of this process."""

    def start(self, make, *arguments):
        """Makes a part; returns what makes peers of it."""
        return functools.partial(DirectPeer, make(*arguments))


class InRay:
    """Parts that are processes."""

    def __init__(self):
        self._hosts = []

    def start(self, make, *arguments):
        """Starts a part in a process of its own."""
        name = f"part/{len(self._hosts)}"
        host = ray.remote(Host).options(num_cpus=0, max_concurrency=THREADS, name=name)
        self._hosts.append(host.remote(make, *arguments))
        return functools.partial(ray_peer, name)

    def pids(self):
        return ray.get([host.pid.remote() for host in self._hosts])


def rates_of_reading(program, spec, ahead, options):
    """Batches and bytes of observations per second, of each repetition."""
    node = program.start(spec.node)
    program.start(Acting, spec, node)().call("fill", options.rows // options.environments)
    learning = program.start(Learning, spec, node, ahead)()
    learning.call("read", 0.0)
    return np.transpose([learning.call("read", options.seconds) for _ in range(options.repeats)])


def rates_of_writing(program, spec, options):
    """Rows per second, of each repetition."""
    acting = program.start(Acting, spec, program.start(spec.node))()
    return [acting.call("write", options.seconds) for _ in range(options.repeats)]


def memory(pids):
    """Resident bytes of each process, shared ones included."""
    found = []
    for pid in pids:
        with open(f"/proc/{pid}/status") as status:
            lines = dict(line.split(":", 1) for line in status)
        found.append(1024 * int(lines["VmRSS"].split()[0]))
    return np.array(found)


def growth_while_stopped(program, spec, options):
    """Growth of the memory of replay, actor and learner; batches before and after."""
    node = program.start(spec.node)
    acting = program.start(Acting, spec, node)()
    learning = program.start(Learning, spec, node, 2)()
    pids = program.pids()[-3:]
    total = options.stopped + 3 * options.seconds
    writing = acting.send("write", total)
    before = learning.call("read", options.seconds)[0]
    reading = learning.send("read", options.seconds)
    time.sleep(options.seconds / 2)
    os.kill(pids[2], signal.SIGSTOP)
    try:
        time.sleep(min(2.0, options.stopped))  # what is on its way arrives
        first = memory(pids)
        time.sleep(options.stopped)
        grown = memory(pids) - first
    finally:
        os.kill(pids[2], signal.SIGCONT)
    reading.result(60.0)
    after = learning.call("read", options.seconds)[0]
    writing.result(60.0)
    return grown, before, after


def report(name, rates, limit):
    middle = statistics.median(rates)
    each = ", ".join(f"{rate:.0f}" for rate in rates)
    print(
        f"{name:<20}{middle:>8.0f} (at least {limit}: {'ok' if middle >= limit else 'MISSED'})   "
        f"({each})"
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--selector", default="proportional")
    parser.add_argument("--environments", type=int, default=4, help="of the actor")
    parser.add_argument("--rows", type=int, default=20_000, help="capacity of the replay")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each measurement")
    parser.add_argument("--repeats", type=int, default=3, help="the medians are printed")
    parser.add_argument("--stopped", type=float, default=30.0, help="seconds without a learner")
    parser.add_argument("--direct", action="store_true", help="one process, and no Ray")
    options = parser.parse_args(arguments)
    program, ahead = (Direct(), 0) if options.direct else (InRay(), 2)
    short, long = (VECTORS, SHORT, SHORT_BATCH), (FRAMES, LONG, LONG_BATCH)
    with contextlib.nullcontext() if options.direct else ray_session():
        spec = Spec(*short, options, OFTEN, NEVER_WAIT)
        batches, _ = rates_of_reading(program, spec, ahead, options)
        report("sequences/s read", batches * SHORT_BATCH, READ_LIMIT)
        spec = Spec(*short, options, NEVER_WAIT, NEVER_WAIT)
        report("rows/s written", rates_of_writing(program, spec, options), WRITTEN_LIMIT)
        spec = Spec(*long, options, OFTEN, NEVER_WAIT)
        _, size = rates_of_reading(program, spec, ahead, options)
        report("MB/s of frames read", size / 1e6, FRAMES_LIMIT)
        if not options.direct:
            spec = Spec(*long, options, LONG_BATCH, MAX_LEAD)
            grown, before, after = growth_while_stopped(program, spec, options)
            print(
                f"learner stopped {options.stopped:.0f} s: memory of replay, actor, learner grew "
                f"by {', '.join(f'{size / 1e6:.1f}' for size in grown)} MB; batches/s before "
                f"{before:.1f}, after {after:.1f}"
            )


@contextlib.contextmanager
def ray_session():
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
