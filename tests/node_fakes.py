"""Stand-ins for what actors, learners and the nodes of a program call."""

import threading
import time

import jax
import numpy as np

from retrax.agents.base import Agent
from retrax.datatypes import SequenceSpec
from retrax.replay.interface import REAL, DirectPeer, Draw, ReplayStatus


def acting_agent(act, **extras):
    """An agent that acts by a function of parameters, a state that is 0 first, and time steps."""
    return Agent(
        init=lambda key: np.zeros(()),
        acting_params=lambda learner: None,
        begin=lambda key, actor_id, num_actors: np.int32(0),
        explore=act,
        exploit=act,
        gradients=None,
        apply=None,
        sequence=SequenceSpec(length=2, extras=extras),
    )


class DirectPeers:
    """`Peers` that are objects of this process: the counter, and who publishes parameters."""

    def __init__(self, counter=None, publisher=None, stop=None, clock=REAL):
        self.counter, self.publisher, self.clock = counter, publisher, clock
        self.stop = stop or threading.Event()

    def peer(self, name):
        return DirectPeer(self.counter if name == "counter/0" else self.publisher)


class Counter:
    """Grants what it is given, and keeps what it receives."""

    def __init__(self, grants=()):
        self.grants, self.claims, self.reports = list(grants), [], []
        self.processes, self.states = [], {}
        self.phase, self.started, self.steps, self.learned = "learning", None, 0, True

    def open(self, counters, names):
        self.started = (dict(counters), names)

    def keep(self, actor, state):
        self.states[actor] = state

    def kept(self, actor):
        return self.states.get(actor)

    def report(self, name, call, values, taken):
        granted = 0
        if taken is None:
            self.reports.append((name, dict(values)))
        else:
            restarts, number = call
            self.claims.append((number, taken, values["episodes"]))
            self.processes.append(restarts)
            granted = self.grants.pop(0) if self.grants else 0
        counters = {"steps": self.steps, "episodes": 0}
        answer = {"phase": self.phase, "counters": counters, "granted": granted}
        return answer | {"learned": self.learned and self.phase == "evaluating"}


class Parameters:
    """A parameter client whose parameters never change."""

    staleness, version, params, new_priority, closed, steps = 2, 7, None, 1.0, False, 0
    wanted, get = False, None

    def wait(self):
        self.version = 1

    def step(self):
        self.steps += 1

    def close(self):
        self.closed = True


class Writer:
    """Keeps rows and priorities."""

    def __init__(self):
        self.rows, self.priorities, self.closed = [], [], False

    def write(self, rows, new_priority):
        self.rows.append(rows)
        self.priorities.append(new_priority)

    def close(self):
        self.closed = True


class BatchReplay:
    """Serves samples in turn, each with the number of those left as its key and metric."""

    metric_names = ("key",)

    def __init__(self, samples, *, like=None, updates=1, wait=0.0):
        self.samples, self._updates, self._wait = list(samples), updates, wait
        self.shapes = [jax.eval_shape(lambda: like or self.samples[0])]
        self.priorities, self.restored = [], None

    def sample(self, timeout=0.0):
        if not self.samples:
            time.sleep(min(timeout, self._wait))
            return None
        sample = self.samples.pop(0)
        return Draw(len(self.samples), sample, self._updates)

    def set_priorities(self, keys, priorities):
        self.priorities.append((keys, priorities.tolist()))

    def metrics(self, keys):
        return {"key": float(keys)}

    def status(self):
        return ReplayStatus(0, 0, None, None, 7.0)

    def state(self):
        return {"left": np.array(len(self.samples))}

    def restore(self, state, counters):
        self.restored = counters

    def close(self):
        pass


class Logger:
    """One of Acme, which keeps what it is given."""

    def __init__(self):
        self.data, self.closed = [], False

    def write(self, data):
        self.data.append(data)

    def close(self):
        self.closed = True


class Clock:
    """In place of `time`, and of a stop event that is set at a given time: waits take no time."""

    def __init__(self, now=0.0):
        self.now, self.waits = now, []
        self.stops_at = self.interrupts_at = float("inf")

    def monotonic(self):
        return self.now

    process_time, event = monotonic, threading.Event

    def sleep(self, seconds):
        self.now += seconds
        if self.now >= self.interrupts_at:
            self.interrupts_at = float("inf")
            raise KeyboardInterrupt

    def is_set(self):
        return self.now >= self.stops_at

    def wait(self, seconds):
        self.waits.append(seconds)
        self.sleep(seconds)
        return self.is_set()
