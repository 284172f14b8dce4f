"""Time of a D4PG step: the update on resident data, and in the training loop.

    python benchmarks/d4pg_step.py [--updates 300] [--rows 100000] [--preset control_suite]

Batches of 256. Observations of 17 numbers and actions of 6, as HalfCheetah's, from an environment
that takes almost no time. Time "in the training loop" is all that an update takes there: sampling
sequences, transfer to the device, transfer of metrics to the host, setting priorities; not acting.
"""

import argparse
import dataclasses
import statistics
import time

import jax
import numpy as np
from dm_env import StepType, TimeStep, specs

from retrax.agents.base import updates_in_one_call
from retrax.agents.d4pg import PRESETS
from retrax.datatypes import EnvironmentSpec, rows_of
from retrax.training import RunConfig
from retrax.training.assembly import make_loop

LOOP_LIMIT, RESIDENT_LIMIT = 0.85, 210
NUM_ENVS = 8
EPISODE = 1000
SPEC = EnvironmentSpec(
    specs.Array((17,), np.float32), specs.BoundedArray((6,), np.float32, -1.0, 1.0)
)


class Noise:
    """Environments of random observations and rewards; episodes end at a limit of 1000 steps."""

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

    def close(self):
        """Does nothing."""


def report(name, value, limit=""):
    print(f"{name:<52} {value:>14} {limit}", flush=True)


def verdict(config, value, limit):
    """Whether the value reaches the limit, at the sizes for which the limit is set."""
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


def fill(local, rows, extras):
    """Adds random rows to a replay, without an agent; extras, whose shapes are given, are 0."""
    extras = {
        name: np.zeros((NUM_ENVS, *extra.shape), extra.dtype) for name, extra in extras.items()
    }
    rng, environment = np.random.default_rng(1), Noise()
    timestep = environment.reset()
    for _ in range(rows // NUM_ENVS):
        action = rng.uniform(-1, 1, (NUM_ENVS, 6)).astype(np.float32)
        local.add(rows_of(timestep, action, extras))
        timestep = environment.step(action)
    local.cut()  # the loop's environments begin new episodes


def resident_rounds(agent, learner, sample, updates, per_call):
    """A function that measures updates per second on batches that are on the device already.

    Args:
      agent: the agent.
      learner: its learner state, which is copied.
      sample: sequences of one call of updates.
      updates: in one measurement; rounded down to whole calls, at least one call.
      per_call: updates in one call.
    """
    calls = max(1, updates // per_call)
    sample = jax.device_put(sample)
    update = jax.jit(updates_in_one_call(agent), static_argnums=2, donate_argnums=0)
    state = jax.tree.map(lambda x: x.copy(), learner)

    def measure():
        nonlocal state
        started = time.perf_counter()
        for _ in range(calls):
            state, result = update(state, sample, per_call)
        jax.block_until_ready((state, result))
        return calls * per_call / (time.perf_counter() - started)

    return measure


def loop_round(loop):
    """Updates per second after one acting step; NaN if no update followed it."""
    loop.flush()
    loop.advance()
    _, rates = loop.flush()
    return rates["learning_updates_per_second"]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="control_suite", choices=sorted(PRESETS))
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--per-step", type=int, default=32, help="updates after each acting step")
    options = parser.parse_args(arguments)
    config = PRESETS[options.preset]()
    replay = dataclasses.replace(config.replay, acting_steps_per_update=NUM_ENVS / options.per_step)
    run = RunConfig(
        agent="d4pg",
        environment="noise",
        num_envs=NUM_ENVS,
        agent_config=dataclasses.replace(config, replay=replay),
    )
    agent = run.entry.make_agent(SPEC, config)
    loop = make_loop(run, agent, [Noise()])
    local = loop.replays[0]
    fill(local, options.rows, agent.sequence.extras)
    print(
        f"jax {jax.__version__} on {jax.devices()[0]}, batches of {replay.batch_size}, "
        f"{replay.updates_per_call} updates in a call"
    )
    while loop.counters.updates < 1:
        loop.advance()
    sample = local.packing.sample(local.draw_now())
    resident_round = resident_rounds(
        agent, loop.learner.state, sample, options.per_step, replay.updates_per_call
    )
    resident_round()
    # Alternating, so that the load of other processes slows both alike.
    rounds = max(1, options.updates // options.per_step)
    rates = [(resident_round(), loop_round(loop)) for _ in range(rounds)]
    resident, in_loop = np.nanmedian(rates, axis=0)
    remark = verdict(config, resident, RESIDENT_LIMIT)
    report("updates/s on resident data", f"{resident:.1f}", remark)
    report("the same, best round", f"{max(rate for rate, _ in rates):.1f}")
    report("updates/s in the training loop", f"{in_loop:.1f}")
    remark = verdict(config, in_loop / resident, LOOP_LIMIT)
    report("loop / resident", f"{in_loop / resident:.2f}", remark)
    keys = local.draw_now().keys
    priorities = np.random.default_rng(2).random(keys.shape[1])
    report("drawing for a call", f"{1e3 * seconds(local.draw_now, options.updates):.2f} ms")
    setting = seconds(lambda: local.set_priorities(keys, priorities), options.updates)
    report("setting its priorities", f"{1e3 * setting:.2f} ms")
    loop.close()


if __name__ == "__main__":
    main()
