"""Reactor: updates against NumPy, metrics, optimiser, sequences; test_actor_critics.py has more."""

import dataclasses
import functools
from itertools import product

import chex
import jax
import jax.numpy as jnp
import linear_agents
import numpy as np
import oracles
import pytest
from document_blocks import blocks, read, run_block
from linear_agents import (
    KEEP,
    SPECS,
    A,
    D,
    as_sample,
    double,
    first_state,
    linear_agent,
    mixed,
    random_rows,
)

from retrax.agents.reactor import Config
from retrax.datatypes import SequenceSpec

SPEC = SPECS["discrete"]
linear_agent = functools.partial(linear_agent, "reactor")
random_rows = functools.partial(random_rows, "discrete")


@pytest.mark.parametrize(
    ("kind", "seed", "half_life", "of_entropy", "policy_gradient"),
    [
        *product(("discrete", "masked"), [0], [None], [1.0], ("beta_loo", "tislr", "islr")),
        ("discrete", 1, 4.0, 0.25, "beta_loo"),
    ],
)
def test_one_update_is_the_numpy_loop(kind, seed, half_life, of_entropy, policy_gradient):
    """The thirteenth: after 12, an entropy bonus of half-life 4 has a quarter of its weight."""
    agent, config = linear_agent(kind, policy_gradient=policy_gradient, entropy_half_life=half_life)
    learner = first_state(agent, seed, seed + 10)._replace(num_updates=jnp.int32(12))
    rows = linear_agents.random_rows(kind, seed, 3, 6)
    assert rows["is_last"].any()
    weights = np.array([0.5, 2.0, 1.3], np.float32)
    gradients, update = agent.gradients(learner, as_sample(rows, weights))
    new = agent.apply(learner, gradients)

    params, target = double(learner.params), double(learner.target_params)
    cost = of_entropy * config.entropy_cost
    fields = dataclasses.asdict(config) | {"masked": kind == "masked", "entropy_cost": cost}
    expected, priorities = oracles.reactor_linear_update(params, target, rows, weights, fields, 0.5)
    chex.assert_trees_all_close(new.params, expected, atol=2e-5)
    loops = jax.tree.map(lambda before, after: (before - after) / 0.5, params, expected)
    chex.assert_trees_all_close(gradients, loops, atol=4e-5)
    norm = np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(loops)))
    np.testing.assert_allclose(update.metrics["gradient_norm"], norm, rtol=1e-4)
    np.testing.assert_allclose(update.priorities, priorities, atol=1e-5)
    chex.assert_trees_all_equal(new.target_params, learner.target_params)
    assert (learner.num_updates, new.num_updates) == (12, 13)


@pytest.fixture(scope="module")
def measured():
    """Config, learner, rows, metrics, valid steps, and the target policy at each row."""
    agent, config = linear_agent()
    learner, rows = first_state(agent, 0, 10), random_rows(0, 3, 6)
    _, update = agent.gradients(learner, as_sample(rows))
    steps = [(b, t) for b, t in np.ndindex(3, 5) if not rows["is_last"][b, t]]
    assert len(steps) < 15
    softmax = jax.nn.softmax(rows["observation"] @ np.asarray(learner.target_params["policy"]))
    return config, learner, rows, update.metrics, steps, mixed(np.asarray(softmax), config)


def distributions(params, rows):
    """Of the linear network's returns, `[B, T + 1, A, N]`."""
    logits = np.einsum("btd,dan->btan", rows["observation"], np.asarray(params["value"]))
    return np.asarray(jax.nn.softmax(logits))


def test_metrics_tell_the_mass_at_the_ends_of_the_support(measured):
    _, learner, rows, metrics, steps, _ = measured
    probs = distributions(learner.params, rows)
    expected = np.mean([probs[b, t, rows["action"][b, t]] for b, t in steps], axis=0)
    found = metrics["mass_at_vmin"], metrics["mass_at_vmax"]
    np.testing.assert_allclose(found, expected[[0, -1]], rtol=1e-4)


def test_metrics_tell_the_mass_of_targets_outside_of_the_support(measured):
    config, learner, rows, metrics, steps, policy = measured
    atoms = np.linspace(config.vmin, config.vmax, config.num_atoms)
    probs = distributions(learner.target_params, rows)
    masses = []
    for b, t in steps:
        reward = np.clip(rows["reward"][b, t + 1], -1.5, 1.5)
        values = reward + config.discount * rows["discount"][b, t + 1] * atoms
        expected = policy[b, t + 1] @ probs[b, t + 1]
        outside = values < config.vmin, values > config.vmax
        masses.append([expected[where].sum() for where in outside])
    expected = np.mean(masses, axis=0)
    assert (expected > 0.01).all()
    found = [metrics[name] for name in ("clipped_below_vmin", "clipped_above_vmax")]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_metrics_tell_how_far_actions_are_from_the_target_networks_policy(measured):
    _, _, rows, metrics, _, policy = measured
    taken = rows["action"][:, 1:, None]
    pi_a, mu_a = (np.take_along_axis(x[:, 1:], taken, 2)[..., 0] for x in (policy, rows["mu"]))
    wanted = oracles.off_policyness(pi_a, mu_a, ~rows["is_last"][:, 1:])
    names = ("mean_ratio", "cut_traces", "effective_sample_share")
    np.testing.assert_allclose([metrics[name] for name in names], wanted, rtol=1e-4)


def test_without_distributions_one_step_by_hand():
    """TD, and beta-LOO (3.1): the sum over actions of Q grad pi, and beta (R - Q) grad pi(a)."""
    loss = {"distributional": False, "entropy_cost": 0.0, "policy_gradient_cap": 1.0}
    numbers = {"sequence_length": 2, "discount": 0.5, "policy_epsilon": 0.01}
    agent, _ = linear_agent(keep=KEEP, **loss, **numbers)
    state = first_state(agent)
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
    sample = as_sample(random_rows(0, 1, 2, ends=0.0) | changes)
    gradients, update = agent.gradients(state, sample)
    first_softmax = np.asarray(jax.nn.softmax(first @ params["policy"]))
    memory = KEEP * first + last
    pi = 0.99 * np.asarray(jax.nn.softmax(memory @ target["policy"])) + 0.01 / A
    return_ = reward + 0.5 * pi @ (memory @ target["value"][..., 0])
    q = first @ params["value"][..., 0]
    error = return_ - q[a]
    np.testing.assert_allclose(update.priorities, [abs(error)], rtol=1e-5)
    of_value = np.zeros((D, A, 1))
    of_value[:, a, 0] = -error * first
    np.testing.assert_allclose(gradients["value"], of_value, atol=1e-5)
    wanted = q.copy()
    wanted[a] += error  # beta = min(1, 1 / mu) = 1
    jacobian = 0.99 * (np.diag(first_softmax) - np.outer(first_softmax, first_softmax))
    expected = -np.outer(first, jacobian @ wanted)
    np.testing.assert_allclose(gradients["policy"], expected, rtol=1e-4, atol=1e-6)


def test_the_default_optimizer_is_adam_with_the_configs_numbers():
    b1, b2, epsilon, rate = 0.3, 0.8, 0.5, 0.1
    agent, _ = linear_agent(
        rate=None, adam_b1=b1, adam_b2=b2, adam_epsilon=epsilon, learning_rate=rate
    )
    state = agent.init(jax.random.key(0))
    gradients = np.random.default_rng(0).normal(size=(3, D, A)).astype(np.float32)
    expected = oracles.adam(double(state.params["policy"]), gradients, rate, b1, b2, epsilon)
    for gradient in gradients:
        state = agent.apply(state, {**state.params, "policy": gradient})
    np.testing.assert_allclose(state.params["policy"], expected, rtol=1e-5)


def test_sequences_are_those_of_the_config():
    extras = {"mu": jax.ShapeDtypeStruct((A,), jnp.float32)}
    agent, _ = linear_agent(sequence_length=7, sequence_period=3)
    assert agent.sequence == SequenceSpec(length=7, period=3, crosses_episodes=True, extras=extras)
    agent, _ = linear_agent(keep=KEEP, initial_state="stored")
    assert agent.sequence.first_row_extras == ("memory",)
    assert set(agent.sequence.extras) == {"mu", "memory"}


def test_the_readmes_example_makes_an_agent():
    page, names = "agents/reactor/README.md", {}
    (block,) = [block for block in blocks(read(page)) if block.language == "python"]
    run_block(page, block, names)
    agent = names["MINE"].make_agent(SPEC, Config.small(scale_rewards=False))
    params = jax.eval_shape(agent.init, jax.random.key(0)).params
    assert params["reactor_module/~/linear"]["w"].shape == (D, 64)
