"""Reactor: the parts of its agent that its losses do not show. Memory, optimiser, sequences."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from dm_env import StepType, specs

from retrax.agents.reactor import Config, make_agent
from retrax.datatypes import EnvironmentSpec, Row, Sample, SequenceSpec, TimeStep
from retrax.networks import ReactorOutput, RecurrentNetwork

D, A, B, LENGTH = 3, 2, 2, 6
SPEC = EnvironmentSpec(specs.Array((D,), np.float32), specs.DiscreteArray(A))
KEEP = 0.5

PAPER = {
    "distributional": True,
    "policy_gradient": "beta_loo",
    "policy_gradient_cap": 1.0,
    "retrace_lambda": 1.0,
    "discount": 0.99,
    "scale_rewards": False,
    "max_abs_reward": 1.0,
    "num_atoms": 51,
    "vmin": -10.0,
    "vmax": 10.0,
    "policy_epsilon": 0.01,
    "entropy_cost": 0.01,
    "learning_rate": 5e-5,
    "adam_b1": 0.0,
    "adam_b2": 0.999,
    "adam_epsilon": 1e-8,
    "target_update_period": 1000,
    "sequence_length": 33,
    "sequence_period": 1,
    "initial_state": "zero",
    "frame_stack": 1,
    "convolutions": ((16, 8, 4), (32, 4, 2), (32, 3, 1)),
    "vector_sizes": (64,),
    "shared_size": 128,
    "memory_size": 128,
    "head_size": 32,
    "recurrent": True,
}
PAPER_REPLAY = {
    "selector": "contextual",
    "capacity": 1_000_000,
    "min_rows": 1000,
    "batch_size": 4,
    "acting_steps_per_update": 5.0,
    "updates_per_call": 1,
    "pace": "steady",
    "priority_exponent": 1.0,
    "importance_exponent": 1.0,
    "uniform_fraction": 0.1,
}


def network_of(config, *, keep):
    """pi and logits linear in a memory: `keep` times the memory before, plus the observation."""
    atoms = config.num_atoms if config.distributional else 1

    def init(key):
        policy, value = jax.random.split(key)
        return {
            "policy": jax.random.normal(policy, (D, A)),
            "value": jax.random.normal(value, (D, A, atoms)),
        }

    def unroll(params, observations, is_first, state):
        def read(memory, inputs):
            observation, first = inputs
            memory = keep * jnp.where(first, 0.0, memory) + observation
            return memory, memory

        state, memories = jax.lax.scan(read, state, (observations, is_first))
        softmax = jax.nn.softmax(memories @ params["policy"])
        policy = (1 - config.policy_epsilon) * softmax + config.policy_epsilon / A
        return ReactorOutput(policy, jnp.einsum("td,dan->tan", memories, params["value"])), state

    def step(params, observation, is_first, state):
        output, state = unroll(params, observation[None], is_first[None], state)
        return jax.tree.map(lambda x: x[0], output), state

    return RecurrentNetwork(init, lambda: jnp.zeros(D), unroll, step)


def make(*, keep=KEEP, **changes):
    """An agent with a memory, and with plain gradient steps of 1."""
    values = {"num_atoms": 3, "vmin": -2.0, "vmax": 2.0, "sequence_length": LENGTH}
    config = Config(**{**values, **changes})
    agent = make_agent(SPEC, config, network=network_of(config, keep=keep), optimizer=optax.sgd(1))
    return agent, config


def memories_by_hand(observations, is_first, memory):
    """What the network remembers after each of the observations `[T, D]`."""
    memories = []
    for observation, first in zip(observations, is_first, strict=True):
        memory = KEEP * (0.0 if first else 1.0) * memory + observation
        memories.append(memory)
    return np.array(memories, np.float32)


def random_sample(memory=None):
    """Two sequences of two episodes each, with the memories `[B, D]` before them."""
    rng = np.random.default_rng(0)
    is_first = np.zeros((B, LENGTH), bool)
    is_first[0, 2] = is_first[1, 4] = True
    is_last = np.roll(is_first, -1, axis=1)
    rows = Row(
        rng.normal(size=(B, LENGTH, D)).astype(np.float32),
        rng.normal(size=(B, LENGTH)).astype(np.float32),
        1.0 - is_last.astype(np.float32),
        is_first,
        is_last,
        rng.integers(A, size=(B, LENGTH)).astype(np.int32),
        {"mu": rng.dirichlet(np.ones(A), (B, LENGTH)).astype(np.float32)},
    )
    if memory is not None:
        rows.extras["memory"] = memory
    return Sample(rows, np.ones(B, np.float32), np.ones((B, LENGTH), bool))


@pytest.mark.parametrize("initial_state", ["zero", "stored"])
def test_both_networks_remember_from_the_initial_state_and_within_an_episode(initial_state):
    """The update is that of a network without memory that observes what this one remembers."""
    stored = initial_state == "stored"
    memory = np.random.default_rng(1).normal(size=(B, D)).astype(np.float32)
    sample = random_sample(memory if stored else None)
    agent, _ = make(initial_state=initial_state)
    state = agent.init(jax.random.key(0))
    state = state._replace(target_params=agent.init(jax.random.key(1)).params)
    observation, is_first = sample.rows.observation, sample.rows.is_first
    starts = memory if stored else np.zeros_like(memory)
    read = np.stack([memories_by_hand(*x) for x in zip(observation, is_first, starts, strict=True)])
    remembered = sample._replace(
        rows=sample.rows._replace(observation=read, extras={"mu": sample.rows.extras["mu"]})
    )
    forgetful, _ = make(keep=0.0)
    expected = jax.jit(forgetful.gradients)(state, remembered)
    chex.assert_trees_all_close(jax.jit(agent.gradients)(state, sample), expected, atol=1e-5)


@pytest.mark.parametrize("function", ["explore", "exploit"])
def test_acting_remembers_within_an_episode(function):
    agent, config = make(initial_state="stored")
    params = agent.init(jax.random.key(0)).params
    observations = np.random.default_rng(0).normal(size=(5, D)).astype(np.float32)
    step_types = [StepType.FIRST, StepType.MID, StepType.LAST, StepType.FIRST, StepType.MID]
    is_first = [step_type == StepType.FIRST for step_type in step_types]
    read = memories_by_hand(observations, is_first, np.zeros(D))
    probabilities = np.asarray(jax.nn.softmax(read @ params["policy"]))
    act = jax.jit(getattr(agent, function))
    actor = agent.begin(jax.random.key(1), 0, 1)
    before = np.zeros(D)
    for t, step_type in enumerate(step_types):
        step = TimeStep(np.int32(step_type), np.float32(0), np.float32(1), observations[t])
        decision = act(params, actor, step)
        mu = 0.99 * probabilities[t] + 0.01 / A
        np.testing.assert_allclose(decision.extras["mu"], mu, rtol=1e-5)
        np.testing.assert_allclose(decision.extras["memory"], before, rtol=1e-5)
        np.testing.assert_allclose(decision.state.memory, read[t], rtol=1e-5)
        if function == "exploit":
            assert decision.action == mu.argmax()
        actor, before = decision.state, read[t]
    assert config.policy_epsilon == 0.01


def test_without_distributions_the_policy_gradient_is_beta_loo_by_hand():
    """3.1: the sum over actions of Q grad pi, and beta (R - Q) grad pi of the action taken."""
    agent, _ = make(distributional=False, sequence_length=2, discount=0.5, entropy_cost=0.0)
    state = agent.init(jax.random.key(0))
    state = state._replace(target_params=agent.init(jax.random.key(1)).params)
    params, target = (jax.tree.map(np.asarray, x) for x in (state.params, state.target_params))
    rng = np.random.default_rng(2)
    first, last = rng.normal(size=(2, D)).astype(np.float32)
    a, mu, reward = 1, np.array([0.6, 0.4], np.float32), np.float32(0.7)
    rows = Row(
        np.stack([first, last]),
        np.array([0, reward]),
        np.ones(2, np.float32),
        np.zeros(2, bool),
        np.zeros(2, bool),
        np.array([a, 0], np.int32),
        {"mu": np.stack([mu, mu])},
    )
    rows = jax.tree.map(lambda x: x[None], rows)
    sample = Sample(rows, np.ones(1, np.float32), np.ones((1, 2), bool))
    gradients, _ = jax.jit(agent.gradients)(state, sample)
    first_softmax = np.asarray(jax.nn.softmax(first @ params["policy"]))
    memory = KEEP * first + last
    pi = 0.99 * np.asarray(jax.nn.softmax(memory @ target["policy"])) + 0.01 / A
    return_ = reward + 0.5 * pi @ (memory @ target["value"][..., 0])
    q = first @ params["value"][..., 0]
    wanted = q.copy()
    wanted[a] += return_ - q[a]  # beta = min(1, 1 / mu) = 1
    jacobian = 0.99 * (np.diag(first_softmax) - np.outer(first_softmax, first_softmax))
    expected = -np.outer(first, jacobian @ wanted)
    np.testing.assert_allclose(gradients["policy"], expected, rtol=1e-4, atol=1e-6)


def test_the_default_optimizer_is_adam_with_the_configs_numbers():
    b1, b2, epsilon, rate = 0.3, 0.8, 0.5, 0.1
    config = Config(adam_b1=b1, adam_b2=b2, adam_epsilon=epsilon, learning_rate=rate)
    agent = make_agent(SPEC, config, network=network_of(config, keep=KEEP))
    state = agent.init(jax.random.key(0))
    expected, rng = np.asarray(state.params["policy"], np.float64), np.random.default_rng(0)
    m, v = np.zeros((D, A)), np.zeros((D, A))
    for t in (1, 2, 3):
        gradient = rng.normal(size=(D, A)).astype(np.float32)
        state = agent.apply(state, {**state.params, "policy": gradient})
        m, v = b1 * m + (1 - b1) * gradient, b2 * v + (1 - b2) * gradient**2
        expected -= rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + epsilon)
    np.testing.assert_allclose(state.params["policy"], expected, rtol=1e-5)


def test_sequences_are_those_of_the_config():
    extras = {"mu": jax.ShapeDtypeStruct((A,), jnp.float32)}
    agent, _ = make(sequence_length=7, sequence_period=3)
    assert agent.sequence == SequenceSpec(length=7, period=3, crosses_episodes=True, extras=extras)
    agent, _ = make(initial_state="stored")
    assert agent.sequence.first_row_extras == ("memory",)
    assert set(agent.sequence.extras) == {"mu", "memory"}


def test_the_default_network_has_the_configs_share_of_the_uniform_policy():
    config = Config.small(
        scale_rewards=False, vector_sizes=(4,), shared_size=4, memory_size=4, policy_epsilon=0.3
    )
    agent = make_agent(SPEC, config)
    params = jax.tree.map(lambda x: 1000.0 * x, jax.jit(agent.init)(jax.random.key(0)).params)
    step = TimeStep(np.int32(0), np.float32(0), np.float32(1), np.ones(D, np.float32))
    mu = jax.jit(agent.explore)(params, agent.begin(jax.random.key(0), 0, 1), step).extras["mu"]
    np.testing.assert_allclose(np.sort(mu), [0.3 / A, 1 - 0.3 / A], rtol=1e-5)


def test_every_value_of_the_paper_preset():
    values = dataclasses.asdict(Config.paper())
    replay = values.pop("replay")
    assert values == PAPER
    assert {name: replay[name] for name in PAPER_REPLAY} == PAPER_REPLAY
