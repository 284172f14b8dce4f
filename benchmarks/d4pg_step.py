"""What a step of D4PG costs: the update on resident data, and in the training loop.

    python benchmarks/d4pg_step.py [--updates 300] [--rows 100000] [--preset control_suite]

Batches of 256, observations of 17 numbers and actions of 6, as HalfCheetah's, out of an environment
that costs nothing. "In the training loop" is all that an update takes there: drawing sequences out
of the store, bringing them to the device and metrics back, setting priorities; not the acting.
"""

import argparse
import statistics
import time

import jax
import numpy as np
from dm_env import StepType, TimeStep, specs

from retrax.agents.d4pg import PRESETS, make_agent
from retrax.environments.types import EnvironmentSpec
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
    from retrax.experiments.loop import _rows

    rng, timestep = np.random.default_rng(1), environment.reset()
    for _ in range(rows // NUM_ENVS):
        action = rng.uniform(-1, 1, (NUM_ENVS, 6)).astype(np.float32)
        store.add(_rows(timestep, action, {}))
        timestep = environment.step(action)


def measure_resident(agent, loop, store, updates):
    """Updates per second of a batch that is on the device already; the state is donated."""
    _, sample = store.sample()
    sample = jax.device_put(sample)
    update = jax.jit(agent.update, donate_argnums=0)
    state, _ = update(jax.tree.map(lambda x: x.copy(), loop.learner), sample)

    def call():
        nonlocal state
        state, result = update(state, sample)
        jax.block_until_ready(result.priorities)

    for _ in range(10):
        call()
    return 1 / seconds(call, updates)


def measure_loop(loop, updates):
    while loop.counters.updates < 10:  # compiled by then
        loop.advance()
    rates = []
    while loop.counters.updates < 10 + updates:
        loop.look()
        loop.advance()
        window = loop.window
        if window.updates:
            rates.append(window.updates / window.learning_seconds)
    return statistics.median(rates)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="control_suite", choices=sorted(PRESETS))
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--per-step", type=int, default=8, help="updates behind each acting step")
    given = parser.parse_args(arguments)
    config = PRESETS[given.preset]()
    replay = config.replay
    agent = make_agent(SPEC, config)
    environment = Noise()
    store = SequenceStore(SPEC, agent.sequence, replay, num_envs=NUM_ENVS, seed=0)
    filled(store, environment, given.rows)
    pace = NUM_ENVS / given.per_step
    replay = type(replay)(**{**vars(replay), "acting_steps_per_update": pace})
    loop = Loop(agent, environment, store, replay, seed=0)
    print(f"jax {jax.__version__} on {jax.devices()[0]}, batches of {replay.batch_size}")
    resident = measure_resident(agent, loop, store, given.updates)
    verdict = "ok" if resident >= RESIDENT_LIMIT else "MISSED"
    say("updates/s on resident data", f"{resident:.1f}", f"(goal {RESIDENT_LIMIT}: {verdict})")
    in_loop = measure_loop(loop, given.updates)
    say("updates/s in the training loop", f"{in_loop:.1f}")
    verdict = "ok" if in_loop >= LOOP_LIMIT * resident else "MISSED"
    ratio = f"{100 * in_loop / resident:.1f} %"
    say("loop / resident", ratio, f"(limit {100 * LOOP_LIMIT:.0f} %: {verdict})")
    slots, sample = store.sample()
    priorities = np.random.default_rng(2).random(len(slots))
    say("drawing a batch", f"{1e3 * seconds(store.sample, given.updates):.2f} ms")
    setting = seconds(lambda: store.set_priorities(slots, priorities), given.updates)
    say("setting its priorities", f"{1e3 * setting:.2f} ms")
    sending = seconds(lambda: jax.block_until_ready(jax.device_put(sample)), given.updates)
    say("sending it to the device", f"{1e3 * sending:.2f} ms")


if __name__ == "__main__":
    main()
