"""Wall time of D4PG's loop in one process, by part, after the first 4,000 steps.

    python docs/results/control/loop_time.py dm_control:cheetah/run Pendulum-v1

A part has its share of the wall time, the median of a call, and the main thread's processor time,
which other programs on the machine change less. Parts do not contain each other.
"""

import functools
import os
import sys
import tempfile
import time
from types import SimpleNamespace

import jax
import numpy as np

import retrax
from retrax.replay.local import LocalReplay, _LocalWriter
from retrax.training import learner, loop

FIRST, STEPS = 4_000, 24_000
PARTS = {
    "acting call": (),
    "waiting for actions": (),
    "environment": (),
    "rows written": (_LocalWriter, "write"),
    "batch drawn": (LocalReplay, "sample"),
    "learner call": (learner.Updates, "__call__"),
    "waiting for an update": (),
    "priorities": (LocalReplay, "set_priorities"),
}
JITTED = ("acting call", "waiting for actions", "learner call", "waiting for an update")
calls = {part: [] for part in PARTS}


def timed(part, function):
    """The function, whose calls are noted: wall and processor time of the calling thread."""

    @functools.wraps(function)
    def call(*arguments, **options):
        began = time.perf_counter(), time.thread_time()
        try:
            return function(*arguments, **options)
        finally:
            calls[part].append((time.perf_counter() - began[0], time.thread_time() - began[1]))

    return call


def instrument():
    """Replaces functions of the loop by timed ones."""
    for part, place in PARTS.items():
        if place:
            setattr(*place, timed(part, getattr(*place)))
    made, advanced = loop.Actor.__init__, loop.Loop.advance
    for module, part in ((loop, "waiting for actions"), (learner, "waiting for an update")):
        module.jax = SimpleNamespace(**vars(jax))
        module.jax.device_get = timed(part, jax.device_get)

    def init(self, *arguments, **options):
        made(self, *arguments, **options)
        self._act = timed("acting call", self._act)
        self._environment.step = timed("environment", self._environment.step)

    def advance(self):
        if self.counters.steps < FIRST:
            for each in calls.values():
                each.clear()
            whole.clear()
        began = time.perf_counter(), time.thread_time()
        advanced(self)
        whole.append((time.perf_counter() - began[0], time.thread_time() - began[1]))

    whole = []
    loop.Actor.__init__, loop.Loop.advance = init, advance
    return whole


def main():
    """Prints a table for each environment."""
    whole = instrument()
    for id in sys.argv[1:]:
        config = retrax.RunConfig(
            agent="d4pg", environment=id, steps=STEPS, evaluate_every=0, snapshot_every=STEPS
        )
        retrax.train(config, tempfile.mkdtemp() + "/run", plain=True)
        wall, cpu = np.sum(whole, axis=0)
        print(f"{id}: {wall:.1f} s, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        rest, inside = np.array([wall, cpu]), 0.0
        for part, each in calls.items():
            total, median = np.sum(each, axis=0), np.median(each, axis=0)[0]
            rest, inside = rest - total, inside + total[0] * (part in JITTED)
            share, micro = 100 * total[0] / wall, 1e6 * median
            print(f"  {part}: {share:.1f} %, {len(each)} of {micro:.0f} us, CPU {total[1]:.2f} s")
        print(f"  the rest of the loop: {100 * rest[0] / wall:.1f} %, CPU {rest[1]:.2f} s")
        print(f"  jitted calls and waiting for them: {100 * inside / wall:.1f} %")


if __name__ == "__main__":
    main()
