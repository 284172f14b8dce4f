"""Agents for tests: linear ones that NumPy can follow, tiny ones of the presets; random rows.

Linear are their outputs in what is observed or remembered. `jitted` compiles each function of an
agent. Tests that share an agent and the shapes of its data share what is compiled, so agents are
made by cached functions.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from dm_env import StepType, specs

from retrax.agents import acer, agent57, d4pg, reactor
from retrax.datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, TimeStep, sample_shape
from retrax.networks import (
    CategoricalOutput,
    FeedForwardNetwork,
    GaussianOutput,
    ReactorOutput,
    RecurrentNetwork,
    legal_actions,
    make_agent57_networks,
)

D, A, SIZE = 4, 3, 2
BOUNDS = specs.BoundedArray((SIZE,), np.float32, [-1.0, 0.0], [1.0, 4.0])
SPECS = {
    "discrete": EnvironmentSpec(specs.Array((D,), np.float32), specs.DiscreteArray(A)),
    "continuous": EnvironmentSpec(specs.Array((D,), np.float32), BOUNDS),
}
MASKED = SPECS["discrete"]._replace(masks_actions=True)
KINDS = {
    "acer": ("discrete", "continuous"),
    "agent57": ("discrete",),
    "d4pg": ("continuous",),
    "reactor": ("discrete",),
}
PACKAGES = {"acer": acer, "agent57": agent57, "d4pg": d4pg, "reactor": reactor}
KEEP = 0.5
AGENT57_SIZES = {
    "num_arms": 5,
    "vector_sizes": (4,),
    "torso_size": 4,
    "lstm_size": 3,
    "head_size": 4,
    "embedding_size": 2,
    "classifier_size": 4,
    "novelty_size": 3,
}
# Sizes of an agent's own networks, and of what it learns from: the smallest that can fail.
TINY = {
    "acer": {
        "vector_sizes": (4,),
        "hidden_size": 4,
        "advantage_size": 4,
        "sequence_length": 8,
        "exploit_average": False,
    },
    "agent57": {
        **AGENT57_SIZES,
        "episodic_capacity": 6,
        "num_neighbours": 2,
        "trace_length": 6,
        "replay_period": 3,
        "bandit_window": 20,
        "evaluator_window": 12,
        "evaluation_average_decay": 0.0,
    },
    "d4pg": {"policy_sizes": (6,), "critic_sizes": (6, 5), "num_atoms": 5, "n_step": 3},
    "reactor": {
        "vector_sizes": (8,),
        "shared_size": 8,
        "memory_size": 8,
        "head_size": 8,
        "num_atoms": 5,
        "sequence_length": 8,
    },
}
LINEAR = {
    "acer": {
        "truncation": 2.0,
        "retrace_lambda": 0.9,
        "delta": 0.4,
        "average_decay": 0.9,
        "discount": 0.8,
        "entropy_cost": 0.2,
        "critic_cost": 0.7,
        "max_abs_reward": 1.5,
        "reward_scale": 2.0,
        "num_dueling_samples": 3,
        "sequence_length": 6,
        "frame_stack": 1,
        "replay": ReplayConfig(pace="rounds"),
    },
    "reactor": {
        "policy_gradient_cap": 2.0,
        "retrace_lambda": 0.9,
        "discount": 0.8,
        "num_atoms": 5,
        "vmin": -3.0,
        "vmax": 3.0,
        "policy_epsilon": 0.1,
        "entropy_cost": 0.2,
        "max_abs_reward": 1.5,
        "sequence_length": 6,
        "target_update_period": 1000,
    },
}


@functools.cache
def tiny_agent(name, preset="small", kind=None, **changes):
    """An agent of a preset with networks of `TINY`, and its config.

    Rewards are not scaled: test_reward_scale.py has agents that do.
    """
    unscaled = {} if name == "agent57" else {"scale_rewards": False}
    config = PACKAGES[name].PRESETS[preset]()
    config = dataclasses.replace(config, **{**TINY[name], **unscaled, **changes})
    return jitted(PACKAGES[name].make_agent(SPECS[kind or KINDS[name][0]], config)), config


@functools.cache
def linear_agent(name, kind="discrete", *, keep=0.0, rate=0.5, **changes):
    """Reactor or ACER on a linear network, and its config.

    `rate` is that of plain gradient steps; without one the agent has its own optimiser.
    """
    config = PACKAGES[name].Config(**{**LINEAR[name], **changes})
    parts = {"optimizer": optax.sgd(rate)} if rate else {}
    if name == "reactor":
        parts["network"] = reactor_network(config, keep, kind)
    else:
        parts |= {"network": acer_network(kind, keep), "advantage": ADVANTAGE}
    spec = MASKED if kind == "masked" else SPECS[kind]
    return jitted(PACKAGES[name].make_agent(spec, config, **parts)), config


def first_state(agent, seed=0, other=1):
    """The first state of a learner, whose target network, or average policy, is another one."""
    state, another = (agent.init(jax.random.key(number)) for number in (seed, other))
    if hasattr(state, "average_params"):
        return state._replace(average_params=another.average_params)
    return state._replace(target_params=another.params)


def double(tree):
    """The arrays of a tree in double precision."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def jitted(agent):
    """The agent, each of its functions compiled on its own."""
    functions = agent._asdict()
    sequence, begin = functions.pop("sequence"), functions.pop("begin")
    compiled = {name: jax.jit(function) for name, function in functions.items()}
    return agent._replace(**compiled, begin=jax.jit(begin, static_argnums=2), sequence=sequence)


def network(init, outputs, keep=0.0):
    """A recurrent network whose outputs are a function of its parameters and a memory `[T, D]`.

    The memory is `keep` times the memory before, plus the observation; without `keep` there is
    none, and outputs are a function of the observations.
    """

    def unroll(params, observations, is_first, state):
        if not keep:
            return outputs(params, observations), state

        def read(memory, inputs):
            observation, first = inputs
            memory = keep * jnp.where(first, 0.0, memory) + observation
            return memory, memory

        state, memories = jax.lax.scan(read, state, (observations, is_first))
        return outputs(params, memories), state

    def step(params, observation, is_first, state):
        observations = jax.tree.map(lambda x: x[None], observation)
        output, state = unroll(params, observations, is_first[None], state)
        return jax.tree.map(lambda x: x[0], output), state

    return RecurrentNetwork(init, lambda: jnp.zeros(D) if keep else (), unroll, step)


def memories_by_hand(observations, is_first, memory):
    """What a network that keeps `KEEP` remembers after each of the observations `[T, D]`."""
    memories = []
    for observation, first in zip(observations, is_first, strict=True):
        memory = KEEP * (0.0 if first else 1.0) * memory + observation
        memories.append(memory)
    return np.array(memories, np.float32)


def acer_network(kind, keep=0.0):
    """ACER's: probabilities and Q, or means and V."""
    sizes = {"policy": (D, A), "q": (D, A)}
    if kind == "continuous":
        sizes = {"policy": (D, SIZE), "value": (D,)}

    def init(key):
        return {
            name: 0.3 * jax.random.normal(key, shape)
            for key, (name, shape) in zip(jax.random.split(key), sizes.items(), strict=True)
        }

    def outputs(params, x):
        if kind != "continuous":
            legal = legal_actions(x, A) if kind == "masked" else None
            pi = jax.nn.softmax(x @ params["policy"], where=legal)
            return CategoricalOutput(pi, x @ params["q"])
        return GaussianOutput(x @ params["policy"], x @ params["value"], x)

    return network(init, outputs, keep)


ADVANTAGE = FeedForwardNetwork(
    lambda key: 0.3 * jax.random.normal(key, (D, SIZE)),
    lambda params, features, action: features @ params @ action,
)


def reactor_network(config, keep=0.0, kind="discrete"):
    """Reactor's: probabilities, and logits of returns."""
    atoms = config.num_atoms if config.distributional else 1

    def init(key):
        policy, value = jax.random.split(key)
        return {
            "policy": jax.random.normal(policy, (D, A)),
            "value": jax.random.normal(value, (D, A, atoms)),
        }

    def outputs(params, x):
        legal = legal_actions(x, A) if kind == "masked" else None
        policy = mixed(jax.nn.softmax(x @ params["policy"], where=legal), config)
        return ReactorOutput(policy, jnp.einsum("td,dan->tan", x, params["value"]))

    return network(init, outputs, keep)


def mixed(policy, config):
    """A policy of Reactor's network with the uniform policy's share."""
    uniform = (policy > 0) / (policy > 0).sum(-1, keepdims=True)
    return (1 - config.policy_epsilon) * policy + config.policy_epsilon * uniform


def agent57_networks(reads_everything=True):
    """Values linear in what the network reads, or in the observation alone; no memory."""

    def values(params, inputs):
        if not reads_everything:
            return inputs.observation @ params
        others = [
            jax.nn.one_hot(inputs.previous_action, A),
            inputs.reward[:, None],
            inputs.intrinsic_reward[:, None],
            jax.nn.one_hot(inputs.arm, TINY["agent57"]["num_arms"]),
        ]
        return jnp.concatenate([inputs.observation, *others], axis=1) @ params

    size = D + A + 2 + TINY["agent57"]["num_arms"] if reads_everything else D
    value = network(lambda key: jax.random.normal(key, (size, A)), values)
    return tiny_agent57_networks()._replace(value=value)


def tiny_agent57_networks(num_actions=A):
    """Agent57's own networks, in the sizes of `TINY`."""
    observation = SPECS["discrete"].observations
    return make_agent57_networks(observation, num_actions=num_actions, **AGENT57_SIZES)


def agent57_config(**changes):
    """`small` in the sizes of `TINY`."""
    return agent57.Config.small(**(TINY["agent57"] | changes))


def episode_rows(rng, length, ends, terminated):
    """Rows of one episode each, with its last row `ends[b]`, and their mask; padding is 0.

    Actions and extras are not among them.
    """
    ends, terminated = np.reshape(ends, (-1, 1)), np.reshape(terminated, (-1, 1)).astype(bool)
    is_last, mask = np.arange(length) == ends, np.arange(length) <= ends
    rows = {
        "observation": rng.normal(size=(*mask.shape, D)) * mask[..., None],
        "reward": rng.normal(size=mask.shape) * mask,
        "discount": mask & ~(is_last & terminated),
    }
    rows = {name: values.astype(np.float32) for name, values in rows.items()}
    return rows | {"is_first": np.zeros_like(mask), "is_last": is_last}, mask


def random_rows(kind, seed, batch, length, ends=0.2):
    """Rows with terminations and truncations, a first row behind each last one."""
    rng = np.random.default_rng(seed)
    shape = (batch, length)
    is_last = rng.random(shape) < ends
    for t in range(1, length):
        is_last[:, t] &= ~is_last[:, t - 1]
    is_first = np.roll(is_last, 1, axis=1)
    is_first[:, 0] = False
    terminated = is_last & (rng.random(shape) < 0.5)
    rows = {
        "observation": rng.normal(size=(*shape, D)).astype(np.float32),
        "reward": np.where(is_first, 0, 2 * rng.normal(size=shape)).astype(np.float32),
        "discount": np.where(terminated, 0.0, 1.0).astype(np.float32),
        "is_first": is_first,
        "is_last": is_last,
    }
    if kind != "continuous":
        mu = 0.9 * rng.dirichlet(np.ones(A), shape) + 0.1 / A
        actions = rng.integers(A, size=shape).astype(np.int32)
        if kind == "masked":
            legal = random_masks(rng, rows["observation"])
            mu, actions = mu * legal, (legal * rng.uniform(1, 2, legal.shape)).argmax(-1)
            mu /= mu.sum(-1, keepdims=True)
        return {**rows, "action": actions.astype(np.int32), "mu": mu.astype(np.float32)}
    mu = rng.uniform(-0.5, 0.5, (*shape, SIZE))
    return {
        **rows,
        "action": np.zeros((*shape, SIZE), np.float32),  # only what was drawn is read
        "mu": mu.astype(np.float32),
        "drawn": (mu + 0.3 * rng.normal(size=mu.shape)).astype(np.float32),
    }


def random_masks(rng, observations):
    """Writes random masks into observations, and returns them."""
    legal = rng.random((*observations.shape[:-1], A)) < 0.5
    legal[..., 1] |= ~legal.any(-1)
    observations[..., -A:] = legal
    return legal


def as_sample(rows, weights=None, mask=None):
    """A sample of rows; what is no field of `Row` is an extra. By default there is no memory."""
    fields = {name: rows[name] for name in Row._fields if name != "extras"}
    extras = {"memory": (), **{name: rows[name] for name in rows if name not in fields}}
    batch, length = rows["reward"].shape
    weights = np.ones(batch, np.float32) if weights is None else weights
    mask = np.ones((batch, length), bool) if mask is None else mask
    return Sample(Row(extras=extras, **fields), weights, mask)


def random_sample(agent, spec, seed, batch=2, ends=None):
    """A sample of whatever an agent reads; `ends[b]` is the last row of sequence b."""
    rng = np.random.default_rng(seed)

    def values(x):
        if x.dtype == np.float32:
            return rng.uniform(0.1, 1.0, x.shape).astype(x.dtype)
        return rng.integers(2 if x.dtype == np.int32 else 1, size=x.shape).astype(x.dtype)

    sample = jax.tree.map(values, sample_shape(spec, agent.sequence, batch))
    rows, last = np.arange(agent.sequence.length), np.reshape(ends or batch * [np.inf], (-1, 1))
    is_last = sample.rows._replace(is_last=rows == last)
    return sample._replace(rows=is_last, mask=rows <= last)


def timestep(kind=StepType.MID, observation=None, reward=0.0):
    """A time step of `SPECS`."""
    observation = np.ones(D, np.float32) if observation is None else observation
    return TimeStep(np.int32(kind), np.float32(reward), np.float32(1), observation)


def decisions(agent, params, count=4000, seen=None):
    """Of actors that differ in their keys: the actors, and their decisions at one time step."""
    keys = jax.random.split(jax.random.key(0), count)
    actors = jax.jit(jax.vmap(lambda key: agent.begin(key, 0, count)))(keys)
    explore = jax.jit(jax.vmap(agent.explore, in_axes=(None, 0, None)))
    return actors, explore(params, actors, timestep(observation=seen))
