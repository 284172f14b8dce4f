"""PPO in one `lax.scan`, as PureJaxRL has it (Lu et al. 2022), beside ACER on a device.

    python benchmarks/ppo.py [--environment CartPole-v1] [--seeds 3] [--goal 475]
                             [--acer-steps 40000] [--ppo-steps 500000]

Both are one compiled function of a key on the same environment in JAX, ACER with its preset `small`
and eight environments, PPO with PureJaxRL's hyper-parameters for CartPole. For each seed: time
steps per second without compilation, and seconds until the mean return of the last 20 episodes of
training is at the goal, by the share of time steps that it took.
"""

import argparse
import functools
import statistics
import time
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from dm_env import StepType

from retrax.agents import acer
from retrax.device import make_train
from retrax.environments import pure
from retrax.environments.factory import make_pure_vector

NUM_ENVS, NUM_STEPS, EPOCHS, MINIBATCHES = 4, 128, 4, 4
DISCOUNT, LAMBDA, CLIP, ENTROPY_COST, VALUE_COST = 0.99, 0.95, 0.2, 0.01, 0.5
LEARNING_RATE, MAX_GRADIENT_NORM = 2.5e-4, 0.5  # the rate falls linearly to 0
WINDOW = 20


class Steps(NamedTuple):
    """What is learned from, `[NUM_STEPS, NUM_ENVS, ...]`; invalid after the end of an episode."""

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    discount: jax.Array
    valid: jax.Array


def make_ppo(environment, steps):
    """From a key to the parameters and returns of ended episodes, `[rows, NUM_ENVS]` with NaN."""
    num_updates = steps // (NUM_ENVS * NUM_STEPS)
    network = hk.without_apply_rng(
        hk.transform(functools.partial(forward, num_actions=environment.spec.actions.num_values))
    )
    rate = optax.linear_schedule(LEARNING_RATE, 0.0, num_updates * EPOCHS * MINIBATCHES)
    optimizer = optax.chain(
        optax.clip_by_global_norm(MAX_GRADIENT_NORM), optax.adam(rate, eps=1e-5)
    )

    def act(params, carry, key):
        running, returns = carry
        before = running.timestep
        logits, value = network.apply(params, before.observation)
        action = jax.random.categorical(key, logits)
        running = pure.advance(environment, running, action)
        after, valid = running.timestep, before.step_type != StepType.LAST
        returns = jnp.where(valid, returns + after.reward, 0.0)
        ended = jnp.where(after.step_type == StepType.LAST, returns, jnp.nan)
        steps = Steps(
            before.observation,
            action,
            log_prob(logits, action),
            value,
            after.reward,
            after.discount,
            valid,
        )
        return (running, returns), (steps, ended)

    def loss(params, batch):
        steps, advantage = batch
        logits, value = network.apply(params, steps.observation)
        ratio = jnp.exp(log_prob(logits, steps.action) - steps.log_prob)
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = jnp.minimum(ratio * scaled, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * scaled)
        target = advantage + steps.value
        near = steps.value + jnp.clip(value - steps.value, -CLIP, CLIP)
        error = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2)
        log_probs = jax.nn.log_softmax(logits)
        entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=-1)
        return jnp.mean(steps.valid * (VALUE_COST * error - gain - ENTROPY_COST * entropy))

    def learn(carry, batch):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params, batch), state)
        return (optax.apply_updates(params, updates), state), None

    def update(carry, key):
        params, state, acting = carry
        act_key, *epoch_keys = jax.random.split(key, 1 + EPOCHS)
        keys = jax.random.split(act_key, NUM_STEPS)
        acting, (steps, ended) = jax.lax.scan(functools.partial(act, params), acting, keys)
        _, last = network.apply(params, acting[0].timestep.observation)
        batch = steps, advantages(steps, last)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
        for epoch_key in epoch_keys:
            order = jax.random.permutation(epoch_key, NUM_STEPS * NUM_ENVS).reshape(MINIBATCHES, -1)
            parts = jax.tree.map(lambda x, order=order: x[order], flat)
            (params, state), _ = jax.lax.scan(learn, (params, state), parts)
        return (params, state, acting), ended

    def train(key):
        network_key, environments_key, key = jax.random.split(key, 3)
        keys = pure.environment_keys(environments_key, NUM_ENVS)
        running = pure.begin(environment, keys)
        params = network.init(network_key, running.timestep.observation)
        acting = running, jnp.zeros(NUM_ENVS)
        carry = params, optimizer.init(params), acting
        (params, *_), ended = jax.lax.scan(update, carry, jax.random.split(key, num_updates))
        return params, ended.reshape(-1, NUM_ENVS)

    return train


def forward(observation, num_actions):
    """Logits of the policy, and the value."""

    def layers(size, scale):
        gains = 2**0.5, 2**0.5, scale
        first, second, last = map(hk.initializers.Orthogonal, gains)
        hidden = [hk.Linear(64, w_init=first), jnp.tanh, hk.Linear(64, w_init=second), jnp.tanh]
        return hk.Sequential([*hidden, hk.Linear(size, w_init=last)])(observation)

    return layers(num_actions, 0.01), layers(1, 1.0)[..., 0]


def log_prob(logits, action):
    """Of each action."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]


def advantages(steps, last_value):
    """Generalised advantage estimates; 0 where steps are invalid."""

    def back(carry, step):
        following, advantage = carry
        error = step.reward + DISCOUNT * step.discount * following - step.value
        advantage = error + DISCOUNT * LAMBDA * step.discount * advantage
        advantage = jnp.where(step.valid, advantage, 0.0)
        return (step.value, advantage), advantage

    zero = jnp.zeros_like(last_value)
    return jax.lax.scan(back, (last_value, zero), steps, reverse=True)[1]


def make_acer(environment, steps):
    """The same of ACER, with eight environments."""
    config = acer.Config.small()
    agent = acer.make_agent(environment.spec, config)
    replay = config.replay.for_environments(8)
    train = make_train(agent, environment, replay, num_envs=8, steps=steps)

    def run(key):
        learner, metrics = train(key)
        return learner, metrics["return"]

    return run


def share_to(returns, goal):
    """The share of the time steps until the mean of the last episodes is at the goal, or NaN."""
    rows, columns = np.nonzero(~np.isnan(returns))
    sums = np.cumsum(returns[rows, columns])
    means = (sums[WINDOW:] - sums[:-WINDOW]) / WINDOW
    found = np.flatnonzero(means >= goal)
    return (rows[WINDOW + found[0]] + 1) / len(returns) if found.size else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environment", default="CartPole-v1")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--goal", type=float, default=475.0)
    parser.add_argument("--acer-steps", type=int, default=40_000)
    parser.add_argument("--ppo-steps", type=int, default=500_000)
    given = parser.parse_args()
    environment = make_pure_vector(given.environment).pure
    runs = {
        "acer": make_acer(environment, given.acer_steps),
        "ppo": make_ppo(environment, given.ppo_steps),
    }
    for name, run in runs.items():
        compiled = jax.jit(run).lower(jax.random.key(0)).compile()
        speeds, seconds = [], []
        for seed in range(given.seeds):
            started = time.perf_counter()
            _, returns = jax.block_until_ready(compiled(jax.random.key(seed)))
            elapsed = time.perf_counter() - started
            speeds.append(returns.size / elapsed)
            seconds.append(elapsed * share_to(np.asarray(returns), given.goal))
        print(
            f"{name:5} {returns.size:8,} steps {statistics.median(speeds):9,.0f} steps/s, "
            f"{given.goal:g} after {', '.join(f'{x:.1f}' for x in seconds)} s"
        )


if __name__ == "__main__":
    main()
