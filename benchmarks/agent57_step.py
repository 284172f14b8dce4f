"""Time of an Agent57 step: the update, acting, and the episodic memory's share of acting.

    python benchmarks/agent57_step.py [--batch 16] [--trace 80] [--scale 1.0] [--repeats 10]

Atari's shapes and the paper's networks; the memory holds 30,000 states. One environment acts.
"""

import argparse
import dataclasses
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from retrax.agents import update
from retrax.agents.agent57 import Config, episodic_memory, make_agent
from retrax.datatypes import EnvironmentSpec, TimeStep
from retrax.replay import LocalReplay

MEMORY_LIMIT = 1 / 3
SPEC = EnvironmentSpec(specs.Array((84, 84, 1), np.uint8), specs.DiscreteArray(18))


def report(name, value, limit=""):
    print(f"{name:<52} {value:>14} {limit}", flush=True)


def median_seconds(step, state, repeats):
    """Median seconds of `step(state) -> state` without compilation; the state may be donated."""
    state = jax.block_until_ready(step(state))
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        state = jax.block_until_ready(step(state))
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def random_sample(agent, config):
    """A batch on the device, without padding."""
    replay = LocalReplay(SPEC, agent.sequence, config.replay, num_envs=1, seed=0)
    rng = np.random.default_rng(0)

    def random_like(x):
        if x.dtype == np.uint8:
            return rng.integers(0, 256, x.shape, np.uint8)
        return np.ones(x.shape, x.dtype) if x.dtype == np.float32 else np.zeros(x.shape, x.dtype)

    sample = jax.tree.map(random_like, replay.shapes[0])
    return jax.device_put(sample._replace(mask=np.ones(sample.mask.shape, bool)))


def measure_update(agent, config, repeats):
    sample = random_sample(agent, config)
    jitted = jax.jit(update(agent), donate_argnums=0)
    learner = jax.jit(agent.init)(jax.random.key(0))
    seconds = median_seconds(lambda state: jitted(state, sample)[0], learner, repeats)
    frames = config.replay.batch_size * config.trace_length
    report(
        f"update of {config.replay.batch_size} x {config.trace_length}", f"{1e3 * seconds:.1f} ms"
    )
    report("frames learned from", f"{frames / seconds:.0f} /s")


def measure_acting(agent, config, repeats):
    learner = jax.jit(agent.init)(jax.random.key(0))
    params = jax.device_put(agent.acting_params(learner))
    state = jax.jit(agent.begin, static_argnums=2)(jax.random.key(1), 0, 1)
    memory = full_memory(config)
    state = state._replace(intrinsic=state.intrinsic._replace(memory=memory))
    frame = np.random.default_rng(0).integers(0, 256, (84, 84, 1), np.uint8)
    timestep = TimeStep(np.int32(1), np.float32(0), np.float32(1), frame)
    explore = jax.jit(agent.explore, donate_argnums=1)
    acting = median_seconds(lambda x: explore(params, x, timestep).state, state, repeats)
    bonus = jax.jit(
        functools.partial(
            episodic_memory.bonus,
            num_neighbours=config.num_neighbours,
            cluster_distance=config.cluster_distance,
            kernel_epsilon=config.kernel_epsilon,
            pseudo_count=config.pseudo_count,
            max_similarity=config.max_similarity,
        ),
        donate_argnums=0,
    )
    embedding = jnp.ones(config.embedding_size)
    lookup = median_seconds(lambda x: bonus(x, embedding)[1], full_memory(config), repeats)
    report("acting step", f"{1e3 * acting:.2f} ms")
    report(f"look-up among {config.episodic_capacity} states", f"{1e3 * lookup:.2f} ms")
    share = lookup / acting
    verdict = "ok" if share < MEMORY_LIMIT else "MISSED"
    report("share of the look-up", f"{100 * share:.0f} %", f"(limit 33 %: {verdict})")


def full_memory(config):
    state = episodic_memory.init(config.episodic_capacity, config.embedding_size)
    entries = np.random.default_rng(0).normal(size=state.entries.shape).astype(np.float32)
    return state._replace(entries=jnp.asarray(entries), size=jnp.int32(len(entries)))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--trace", type=int, default=80)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--memory", type=int, default=30_000)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args(arguments)
    paper = Config()
    config = dataclasses.replace(
        paper,
        trace_length=options.trace,
        replay_period=max(1, options.trace // 2),
        network_scale=options.scale,
        episodic_capacity=options.memory,
        replay=dataclasses.replace(
            paper.replay, capacity=1000, min_rows=1, batch_size=options.batch
        ),
    )
    agent = make_agent(SPEC, config)
    print(f"jax {jax.__version__} on {jax.devices()[0]}, networks scaled by {options.scale}")
    measure_acting(agent, config, options.repeats)
    measure_update(agent, config, options.repeats)


if __name__ == "__main__":
    main()
