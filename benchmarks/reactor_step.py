"""Time of a Reactor step: the update, its target, the loop around it, the priority tree.

    python benchmarks/reactor_step.py [--environment ALE/Pong-v5] [--updates 50] [--keys 1000000]

Ratios compare figures of the same run. Where we set a limit, it is printed beside the ratio.
"""

import argparse
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
import priority_tree  # beside this file

from retrax import losses
from retrax.agents import update
from retrax.agents.reactor import PRESETS
from retrax.training import RunConfig
from retrax.training.assembly import make_environments, make_loop

TARGET_LIMIT = 0.05
OUTSIDE_LIMIT = 0.10


def naive_target(atoms, q_t, a_t, r_t, discount_t, pi_t, c_t):
    """The baseline: a scan over n for each source step, each distribution projected by itself."""
    horizon = r_t.shape[0]
    c_t = c_t.at[-1].set(0.0)

    def from_source(source):
        def add_n(carry, destination):
            target, rewards, discount, trace = carry
            follows = destination >= source
            rewards = rewards + discount * r_t[destination] * follows
            discount = jnp.where(follows, discount * discount_t[destination], discount)
            alpha = pi_t[destination].at[a_t[destination]].add(-c_t[destination])
            mass = trace * follows * (alpha @ q_t[destination])
            inside = jnp.clip(rewards + discount * atoms, atoms[0], atoms[-1])
            apart = jnp.abs(inside - atoms[:, None]) / (atoms[1] - atoms[0])
            target += jnp.maximum(1.0 - apart, 0.0) @ mass  # the whole kernel, `[N, N]`
            trace = jnp.where(follows, trace * c_t[destination], trace)
            return (target, rewards, discount, trace), None

        start = (jnp.zeros_like(atoms), 0.0, 1.0, 1.0)
        return jax.lax.scan(add_n, start, jnp.arange(horizon))[0][0]

    return jax.vmap(from_source)(jnp.arange(horizon))


def seconds(function, repeats):
    """Median seconds of a call, without compilation."""
    jax.block_until_ready(function())
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def report(name, value, limit=""):
    print(f"{name:<52} {value:>14} {limit}", flush=True)


def verdict(share, limit, config):
    """The share in percent and, at the paper's sizes, whether it is below the limit."""
    percent = f"{100 * share:.1f} %"
    if config != PRESETS["paper"]():
        return percent, "(the limits are for the paper's sizes)"
    return percent, f"(limit {100 * limit:.0f} %: {'ok' if share < limit else 'MISSED'})"


def measure_update(agent, loop, config, num_actions, repeats):
    local = loop.replays[0]
    sample = jax.device_put(local.packing.sample(local.draw_now()))
    jitted = jax.jit(update(agent))
    state = loop.learner.state
    whole = seconds(lambda: jitted(state, sample), repeats)
    report("update on resident data", f"{1e3 * whole:.2f} ms")
    if not config.distributional:
        return
    atoms, arguments = target_arguments(config, num_actions)

    def batched(function):
        """With atoms that are a constant, as in the agent's update."""
        return jax.jit(jax.vmap(functools.partial(function, atoms)))

    ours = batched(losses.distributional_off_policy_target)
    naive = batched(naive_target)
    np.testing.assert_allclose(ours(*arguments), naive(*arguments), atol=1e-4)
    target = seconds(lambda: ours(*arguments), repeats)
    baseline = seconds(lambda: naive(*arguments), repeats)
    report("share of the target in it", *verdict(target / whole, TARGET_LIMIT, config))
    report("the same for a naive scan", f"{100 * baseline / whole:.1f} %")
    report("naive scan / ours", f"{baseline / target:.1f} x")


def target_arguments(config, num_actions):
    rng = np.random.default_rng(0)
    shape = (config.replay.batch_size, config.sequence_length - 1)
    atoms = np.linspace(config.vmin, config.vmax, config.num_atoms, dtype=np.float32)
    arguments = (
        rng.dirichlet(np.ones(config.num_atoms), (*shape, num_actions)),
        rng.integers(num_actions, size=shape),
        rng.normal(size=shape),
        np.full(shape, config.discount),
        rng.dirichlet(np.ones(num_actions), shape),
        rng.random(shape),
    )
    arguments = [x.astype("i4" if x.dtype.kind == "i" else "f4") for x in arguments]
    return atoms, jax.device_put(arguments)


def timed_loop(loop, updates):
    """Steps per second, updates per second, and the share of the time outside jitted calls."""
    inside = 0.0

    def timed(function):
        def call(*arguments):
            nonlocal inside
            started = time.perf_counter()
            result = jax.block_until_ready(function(*arguments))
            inside += time.perf_counter() - started
            return result

        return call

    for actor in loop._actors:
        actor._act = timed(actor._act)
    made = loop.learner._updates
    made._jitted = timed(made._jitted)
    for _ in range(3):  # the functions are compiled after these
        loop.advance()
    inside, before = 0.0, (loop.counters.steps, loop.counters.updates)
    started = time.perf_counter()
    while loop.counters.updates < before[1] + updates:
        loop.advance()
    elapsed = time.perf_counter() - started
    steps, done = loop.counters.steps - before[0], loop.counters.updates - before[1]
    return steps / elapsed, done / elapsed, 1 - inside / elapsed


def measure_loop(loop, config, updates):
    steps, done, outside = timed_loop(loop, updates)
    report("training loop", f"{steps:.0f} steps/s", f"({done:.1f} updates/s)")
    report("share of the loop outside jitted calls", *verdict(outside, OUTSIDE_LIMIT, config))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", default="ALE/Pong-v5")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--keys", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    run = RunConfig(agent="reactor", environment=options.environment, num_envs=options.num_envs)
    environments = make_environments(run, resumed_at=None)
    spec = environments[0].spec
    run = run.resolve(spec)
    config = run.agent_config
    agent = run.entry.make_agent(spec, config)
    loop = make_loop(run, agent, environments)
    print(f"jax {jax.__version__} on {jax.devices()[0]}, {options.environment}")
    while loop.counters.updates < 1:
        loop.advance()
    measure_update(agent, loop, config, spec.actions.num_values, options.updates)
    measure_loop(loop, config, options.updates)
    loop.close()
    priority_tree.main(["--keys", str(options.keys), "--batches", str(config.replay.batch_size)])


if __name__ == "__main__":
    main()
