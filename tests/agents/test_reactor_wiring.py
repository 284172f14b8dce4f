"""Reactor: the parts of its agent that its losses do not show. Memory, optimiser, sequences."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from dm_env import StepType
from linear_agents import (
    KEEP,
    SPECS,
    A,
    D,
    as_sample,
    jitted,
    memories_by_hand,
    mixed,
    random_rows,
    reactor_network,
    timestep,
)

from retrax.agents.reactor import Config, make_agent
from retrax.datatypes import SequenceSpec

SPEC, LENGTH = SPECS["discrete"], 6

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


def make(*, keep=KEEP, **changes):
    """An agent with a memory, and with plain gradient steps of 1."""
    values = {"num_atoms": 3, "vmin": -2.0, "vmax": 2.0, "sequence_length": LENGTH}
    config = Config(**{**values, **changes})
    network = reactor_network(config, keep)
    return jitted(make_agent(SPEC, config, network=network, optimizer=optax.sgd(1))), config


@pytest.mark.parametrize("initial_state", ["zero", "stored"])
def test_both_networks_remember_from_the_initial_state_and_within_an_episode(initial_state):
    """The update is that of a network without memory that observes what this one remembers."""
    rows = random_rows("discrete", 0, 2, LENGTH)
    assert rows["is_first"].any()
    memory = {"memory": np.random.default_rng(1).normal(size=(2, D)).astype(np.float32)}
    starts = memory["memory"] if initial_state == "stored" else np.zeros((2, D))
    inputs = zip(rows["observation"], rows["is_first"], starts, strict=True)
    read = np.stack([memories_by_hand(*each) for each in inputs])
    (agent, _), (forgetful, _) = make(initial_state=initial_state), make(keep=0.0)
    state = agent.init(jax.random.key(0))
    state = state._replace(target_params=agent.init(jax.random.key(1)).params)
    expected = forgetful.gradients(state, as_sample(rows | {"observation": read}))
    sample = as_sample(rows | (memory if initial_state == "stored" else {}))
    chex.assert_trees_all_close(agent.gradients(state, sample), expected, atol=1e-5)


@pytest.mark.parametrize("function", ["explore", "exploit"])
def test_acting_remembers_within_an_episode(function):
    agent, config = make(initial_state="stored")
    params = agent.init(jax.random.key(0)).params
    observations = np.random.default_rng(0).normal(size=(5, D)).astype(np.float32)
    step_types = [StepType.FIRST, StepType.MID, StepType.LAST, StepType.FIRST, StepType.MID]
    is_first = [step_type == StepType.FIRST for step_type in step_types]
    read = memories_by_hand(observations, is_first, np.zeros(D))
    probabilities = np.asarray(jax.nn.softmax(read @ params["policy"]))
    act = getattr(agent, function)
    actor = agent.begin(jax.random.key(1), 0, 1)
    before = np.zeros(D)
    for t, step_type in enumerate(step_types):
        decision = act(params, actor, timestep(step_type, observations[t]))
        mu = mixed(probabilities[t], config)
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
    a, mu, reward = 1, np.array([0.6, 0.3, 0.1], np.float32), np.float32(0.7)
    changes = {
        "observation": np.stack([first, last])[None],
        "reward": np.array([[0, reward]]),
        "action": np.array([[a, 0]], np.int32),
        "mu": np.stack([mu, mu])[None],
    }
    sample = as_sample(random_rows("discrete", 0, 1, 2, ends=0.0) | changes)
    gradients, _ = agent.gradients(state, sample)
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
    agent = jitted(make_agent(SPEC, config, network=reactor_network(config, KEEP)))
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
    agent = jitted(make_agent(SPEC, config))
    params = jax.tree.map(lambda x: 1000.0 * x, agent.init(jax.random.key(0)).params)
    actor = agent.begin(jax.random.key(0), 0, 1)
    mu = agent.explore(params, actor, timestep(StepType.FIRST)).extras["mu"]
    np.testing.assert_allclose(np.sort(mu), [0.1, 0.1, 0.8], rtol=1e-5)


def test_every_value_of_the_paper_preset():
    values = dataclasses.asdict(Config.paper())
    replay = values.pop("replay")
    assert values == PAPER
    assert {name: replay[name] for name in PAPER_REPLAY} == PAPER_REPLAY
