"""What agents share: steps of sequences, ratios, N-step transitions, exploration, optimisers.

Against definitions in NumPy.
"""

import jax
import jax.numpy as jnp
import linear_agents
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_agents import as_sample, episode_rows

from retrax.agents import base, exploration, sequences
from retrax.agents.optimization import gradient_metrics
from retrax.datatypes import Row, Sample

B, T, A = 3, 6, 4
SEEDS = st.integers(0, 2**31)


@pytest.mark.parametrize(("shape", "loops"), [((8, 8, 1), 0), ((3,), 1)])
def test_only_updates_without_images_are_computed_in_a_loop(shape, loops):
    """On a CPU, a convolution within a loop takes many times as long as outside of it."""
    observation = np.ones((6, 4, *shape), np.float32)
    row = Row(observation, *[np.ones((6, 4), np.float32)] * (len(Row._fields) - 1))

    def gradients(state, sample):
        return jnp.mean(sample.rows.observation), base.Update(sample.weights * state, {"x": state})

    nothing = dict.fromkeys(base.Agent._fields)
    agent = base.Agent(**nothing)._replace(gradients=gradients, apply=lambda state, g: state + g)
    updates = base.updates_in_one_call(agent)
    sample = Sample(row, np.arange(6, dtype=np.float32), np.ones((6, 4), bool))
    program = jax.jit(updates, static_argnums=2).lower(jnp.float32(0), sample, 3).as_text()
    assert program.count("stablehlo.while") == loops
    state, outputs = updates(jnp.float32(0), sample, 3)
    assert (state, outputs.metrics) == (3, {"x": 1})
    assert outputs.priorities.tolist() == [0, 0, 2, 3, 8, 10]  # each has its part of the batch


# Sequences


def random_rows(seed):
    """Rows of two episodes or more, `[B, T + 1]`, and a mask that ends at any row."""
    rows = as_sample(linear_agents.random_rows("discrete", seed, B, T + 1, ends=0.3)).rows
    return rows, np.arange(T + 1) < np.random.default_rng(seed).integers(2, T + 2, (B, 1))


def by_hand(rows, mask):
    """The steps' masks and numbers, one at a time."""
    valid, acted, rewards, discounts = np.zeros((4, B, T))
    for b, i in np.ndindex(B, T):
        source, destination = i, i + 1
        valid[b, i] = mask[b, destination] and not rows.is_last[b, source]
        acted[b, i] = mask[b, destination] and not rows.is_last[b, destination]
        rewards[b, i] = min(max(rows.reward[b, destination], -1.5), 1.5)
        discounts[b, i] = 0.9 * rows.discount[b, destination]
    return valid, acted, rewards, discounts


@pytest.mark.parametrize("batched", [True, False])
def test_steps_are_the_loops_over_rows(batched):
    rows, mask = random_rows(0)
    functions = [
        sequences.valid_steps,
        sequences.acted,
        lambda rows, mask: sequences.rewards(rows, 1.5),
        lambda rows, mask: sequences.discounts(rows, 0.9),
    ]
    expected = by_hand(rows, mask)
    assert all(len(np.unique(each)) > 1 for each in expected)
    for function, values in zip(functions, expected, strict=True):
        actual = (function if batched else jax.vmap(function))(rows, mask)
        assert actual.shape == (B, T)
        np.testing.assert_allclose(actual, values, rtol=1e-6)
    assert np.abs(rows.reward[:, 1:]).max() > 1.5
    np.testing.assert_array_equal(sequences.rewards(rows), rows.reward[:, 1:])


@pytest.mark.parametrize("shape", [(T, A), (T, A, 5)])
def test_taken_are_the_entries_of_the_actions(shape):
    rng = np.random.default_rng(0)
    values, actions = rng.normal(size=shape).astype(np.float32), rng.integers(A, size=T)
    expected = np.stack([values[t, actions[t]] for t in range(T)])
    np.testing.assert_array_equal(sequences.taken(jnp.asarray(values), actions), expected)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_masked_mean_is_the_mean_of_the_valid_entries(axis):
    rng = np.random.default_rng(0)
    valid = rng.random((B, T)) < 0.6
    valid[1] = True
    x = np.where(valid, rng.normal(size=(B, T)), np.nan).astype(np.float32)
    actual = sequences.masked_mean(jnp.asarray(x), jnp.asarray(valid), axis)
    np.testing.assert_allclose(actual, np.nanmean(x, axis), rtol=1e-6)


def test_masked_mean_of_nothing_is_zero_and_has_no_gradient():
    valid = jnp.array([[True, True], [False, False]])
    x = jnp.array([[1.0, 2.0], [5.0, jnp.nan]])
    np.testing.assert_array_equal(sequences.masked_mean(x, valid, axis=1), [1.5, 0.0])
    gradient = jax.grad(lambda x: sequences.masked_mean(x, valid))(x)
    np.testing.assert_array_equal(gradient, [[0.5, 0.5], [0.0, 0.0]])


# Metrics of importance ratios

RATIO_METRICS = ("mean_ratio", "cut_traces", "effective_sample_share")
found_for = jax.jit(sequences.off_policyness)


def metrics_of(ratios, acted):
    found = found_for(np.asarray(ratios, np.float32), np.asarray(acted, bool))
    assert set(found) == set(RATIO_METRICS)
    return [float(found[name]) for name in RATIO_METRICS]


@settings(max_examples=30, deadline=None)
@given(shape=st.sampled_from([(1, 1), (3, 5), (2, 8)]), seed=SEEDS, share=st.floats(0.0, 1.0))
def test_metrics_of_ratios_are_their_definition(shape, seed, share):
    rng = np.random.default_rng(seed)
    pi_a, mu_a = rng.uniform(0.0, 1.0, shape), rng.uniform(0.05, 1.0, shape)
    acted = rng.random(shape) < share
    ratios = np.where(acted, pi_a / mu_a, np.nan)  # what means nothing may be anything
    wanted = oracles.off_policyness(pi_a, mu_a, acted)
    np.testing.assert_allclose(metrics_of(ratios, acted), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ratios", "acted", "expected"),
    [
        # Mean 1, two of three cut, (3)^2 / (3 (0.25 + 4 + 0.25)) = 2 / 3; on-policy data; nothing.
        ([0.5, 2.0, 0.5, 9.0], [True, True, True, False], [1.0, 2 / 3, 2 / 3]),
        ([1.0, 1.0], [True, True], [1.0, 0.0, 1.0]),
        ([0.0, 0.0], [True, True], [0.0, 1.0, 0.0]),
        ([0.0, 0.0], [False, False], [0.0, 0.0, 0.0]),
    ],
)
def test_metrics_of_ratios_by_hand(ratios, acted, expected):
    np.testing.assert_allclose(metrics_of([ratios], [acted]), expected, rtol=1e-6)


def test_one_large_ratio_counts_as_one_step():
    for large in (1e30, np.inf):
        found = metrics_of([[large, 1e-3, 1e-3, 1e-3]], np.ones((1, 4)))
        assert found[1:] == pytest.approx([0.75, 0.25])


def test_no_gradient_flows_through_metrics_of_ratios():
    def total(ratios):
        return sum(sequences.off_policyness(ratios, np.ones(3, bool)).values())

    np.testing.assert_array_equal(jax.grad(total)(np.array([0.5, 1.5, 2.0])), np.zeros(3))


# N-step transitions

transitions = jax.jit(sequences.n_step_transitions, static_argnums=1)


def random_sample(seed, batch=5, length=4):
    """Sequences of one episode each; some end by termination, some by truncation, some not."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(1, length + 2, size=batch)  # beyond the length: no end
    rows, mask = episode_rows(rng, length, ends, rng.random(batch) < 0.5)
    actions = rng.integers(3, size=mask.shape).astype(np.int32)
    return as_sample(rows | {"action": actions}, mask=mask)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, gamma=st.sampled_from([0.0, 0.8, 1.0]), length=st.sampled_from([2, 4]))
def test_transitions_are_the_numpy_loop(seed, gamma, length):
    sample = random_sample(seed, length=length)
    found = transitions(sample, gamma)
    for b in range(5):
        return_, discount, last = oracles.n_step_transition(
            sample.rows.reward[b], sample.rows.discount[b], sample.mask[b], gamma
        )
        np.testing.assert_allclose(found.return_[b], return_, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.discount[b], discount, rtol=1e-6)
        np.testing.assert_array_equal(found.observation_t[b], sample.rows.observation[b, last])
    np.testing.assert_array_equal(found.observation_tm1, sample.rows.observation[:, 0])
    np.testing.assert_array_equal(found.action_tm1, sample.rows.action[:, 0])


# Exploration


def test_epsilon_falls_from_actor_to_actor():
    epsilons = [exploration.epsilon_of_actor(actor, 256, 0.4, 8.0) for actor in range(256)]
    assert (np.diff(epsilons) < 0).all()
    np.testing.assert_allclose([epsilons[0], epsilons[-1]], [0.4, 2.62e-4], rtol=1e-3)
    np.testing.assert_allclose(exploration.epsilon_of_actor(0, 1, 0.4, 8.0), 0.4**5, rtol=1e-6)


def test_mu_depends_on_the_action_and_not_on_the_branch_that_drew_it():
    """Of 3 legal ones and epsilon 0.6 the greedy one has 1 - 0.6 * 2 / 3 = 0.6, however drawn."""
    values = np.array([0.0, 2.0, -np.inf, 1.0], np.float32)
    keys = jax.random.split(jax.random.key(0), 3000)
    draw = jax.jit(jax.vmap(exploration.epsilon_greedy, in_axes=(0, None, None)))
    actions, mu = draw(keys, values, 0.6)
    np.testing.assert_allclose(mu, np.where(actions == 1, 0.6, 0.2), rtol=1e-6)
    counts = np.bincount(actions, minlength=4) / 3000
    np.testing.assert_allclose(counts, [0.2, 0.6, 0, 0.2], atol=0.04)
    assert counts[2] == 0


# Optimisers


def test_dead_units_are_biases_without_a_gradient():
    gradients = {
        "first": {"w": jnp.zeros((3, 2)), "b": jnp.array([0.0, 3.0])},
        "second": {"b": jnp.array([0.0, 0.0, 4.0])},
    }
    found = gradient_metrics(gradients, "critic_")
    assert found.keys() == {"critic_gradient_norm", "critic_dead_units"}
    np.testing.assert_allclose(found["critic_gradient_norm"], 5.0)
    np.testing.assert_allclose(found["critic_dead_units"], 3 / 5, rtol=1e-6)
    assert found["critic_dead_units"].dtype == jnp.float32
    assert gradient_metrics({"w": jnp.zeros((2, 2))})["dead_units"] == 0
