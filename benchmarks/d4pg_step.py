"""What a step of D4PG costs: the update on resident data, and in the training loop.

    python benchmarks/d4pg_step.py [--updates 300] [--rows 100000] [--preset control_suite]

Batches of 256, observations of 17 numbers and actions of 6, as HalfCheetah's, out of an environment
that costs nothing. "In the training loop" is all that an update takes there: drawing sequences out
of the store, bringing them to the device and metrics back, setting priorities; not the acting.
"""

import argparse
import dataclasses
import statistics
import time

import jax
import numpy as np
from dm_env import StepType, TimeStep, specs

from retrax.agents.base import updates_in_one_call
from retrax.agents.d4pg import PRESETS, make_agent
from retrax.datatypes import EnvironmentSpec, Row
from retrax.experiments.loop import Loop
from retrax.replay import SequenceStore

LOOP_LIMIT, RESIDENT_LIMIT = 0.85, 210
NUM_ENVS = 8
EPISODE = 1000
SPEC = EnvironmentSpec(
    specs.Array((17,), np.float32), specs.BoundedArray((6,), np.float32, -1.0, 1.0)
)


class Noise:
    """Environments that show random numbers, in episodes of a thousand steps, cut off by time."""

    num_envs, spec = NUM_ENVS, SPEC

    def __init__(self):
        self._rng = np.random.default_rng(0)
        self._step = 0

    def reset(self):
        self._step = -1
        return self.step(None)

    def step(self, actions):
        self._step = (self._step + 1) % (EPISODE + 1)
        kind = {0: StepType.FIRST, EPISODE: StepType.LAST}.get(self._step, StepType.MID)
        reward = self._rng.random(NUM_ENVS, np.float32) * (self._step > 0)
        observation = self._rng.standard_normal((NUM_ENVS, 17), np.float32)
        ones = np.ones(NUM_ENVS, np.float32)
        return TimeStep(np.full(NUM_ENVS, kind, np.int32), reward, ones, observation)


def say(name, value, limit=""):
    print(f"{name:<52} {value:>14} {limit}", flush=True)


def verdict(config, value, limit):
    """Whether it keeps the limit, at the sizes that the limit is for."""
    if config != PRESETS["control_suite"]():
        return "(the limits are for the preset control_suite)"
    return f"(limit {limit}: {'ok' if value >= limit else 'MISSED'})"


def seconds(function, repeats):
    """Median seconds of a call."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def filled(store, environment, rows):
    """Puts random rows into the store, without an agent."""
    rng, timestep = np.random.default_rng(1), environment.reset()
    for _ in range(rows // NUM_ENVS):
        action = rng.uniform(-1, 1, (NUM_ENVS, 6)).astype(np.float32)
        first, last = (timestep.step_type == kind for kind in (StepType.FIRST, StepType.LAST))
        store.add(
            Row(timestep.observation, timestep.reward, timestep.discount, first, last, action, {})
        )
        timestep = environment.step(action)


def resident_rounds(agent, learner, sample, updates, per_call):
    """Makes a function: updates per second on batches that are on the device already.

    It makes about so many updates, in whole calls of `per_call`.
    """
    calls = max(1, updates // per_call)
    sample = jax.device_put(sample)
    update = jax.jit(updates_in_one_call(agent.update, per_call), donate_argnums=0)
    state = jax.tree.map(lambda x: x.copy(), learner)

    def measure():
        nonlocal state
        started = time.perf_counter()
        for _ in range(calls):
            state, result = update(state, sample)
        jax.block_until_ready((state, result))
        return calls * per_call / (time.perf_counter() - started)

    return measure


def loop_round(loop):
    """Updates per second of those behind one acting step."""
    loop.look()
    loop.advance()
    return loop.window.updates / loop.window.learning_seconds


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="control_suite", choices=sorted(PRESETS))
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--per-step", type=int, default=32, help="updates behind each acting step")
    given = parser.parse_args(arguments)
    config = PRESETS[given.preset]()
    replay = config.replay
    agent = make_agent(SPEC, config)
    environment = Noise()
    store = SequenceStore(SPEC, agent.sequence, replay, num_envs=NUM_ENVS, seed=0)
    filled(store, environment, given.rows)
    replay = dataclasses.replace(replay, acting_steps_per_update=NUM_ENVS / given.per_step)
    loop = Loop(agent, environment, store, replay, seed=0)
    print(
        f"jax {jax.__version__} on {jax.devices()[0]}, batches of {replay.batch_size}, "
        f"{replay.updates_per_call} updates in a call"
    )
    while loop.counters.updates < 1:
        loop.advance()
    sample = store.sample()[1]
    resident_round = resident_rounds(
        agent, loop.learner, sample, given.per_step, replay.updates_per_call
    )
    resident_round()
    # In turn: whatever else the machine does hits both alike.
    rounds = max(1, given.updates // given.per_step)
    rates = [(resident_round(), loop_round(loop)) for _ in range(rounds)]
    resident, in_loop = map(statistics.median, zip(*rates, strict=True))
    told = verdict(config, resident, RESIDENT_LIMIT)
    say("updates/s on resident data", f"{resident:.1f}", told)
    say("the same, best round", f"{max(rate for rate, _ in rates):.1f}")
    say("updates/s in the training loop", f"{in_loop:.1f}")
    told = verdict(config, in_loop / resident, LOOP_LIMIT)
    say("loop / resident", f"{in_loop / resident:.2f}", told)
    slots, _ = store.sample()
    priorities = np.random.default_rng(2).random(len(slots))
    say("drawing for a call", f"{1e3 * seconds(store.sample, given.updates):.2f} ms")
    setting = seconds(lambda: store.set_priorities(slots, priorities), given.updates)
    say("setting its priorities", f"{1e3 * setting:.2f} ms")


if __name__ == "__main__":
    main()
