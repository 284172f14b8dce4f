"""Masks, means, rewards, discounts and ratios of sequences, against definitions in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.agents import sequences
from retrax.datatypes import Row

B, T, A = 3, 6, 4


def random_rows(seed):
    """Rows of two episodes or more, `[B, T + 1]`, and a mask that ends at a last row."""
    rng = np.random.default_rng(seed)
    shape = (B, T + 1)
    is_last = rng.random(shape) < 0.3
    mask = np.arange(T + 1) < rng.integers(2, T + 2, (B, 1))
    rows = Row(
        observation=rng.normal(size=shape).astype(np.float32),
        reward=(3 * rng.normal(size=shape)).astype(np.float32),
        discount=rng.integers(2, size=shape).astype(np.float32),
        is_first=np.zeros(shape, bool),
        is_last=is_last,
        action=rng.integers(A, size=shape).astype(np.int32),
        extras={},
    )
    return rows, mask


def by_hand(rows, mask):
    """The steps' masks and numbers, one at a time."""
    valid, acted = np.zeros((B, T), bool), np.zeros((B, T), bool)
    rewards, discounts = np.zeros((B, T)), np.zeros((B, T))
    for b in range(B):
        for i in range(T):
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


def test_rewards_are_whole_without_a_bound():
    rows, _ = random_rows(0)
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

NAMES = ("mean_ratio", "cut_traces", "effective_sample_share")
found_for = jax.jit(sequences.off_policyness)


def values(ratios, acted):
    found = found_for(np.asarray(ratios, np.float32), np.asarray(acted, bool))
    assert set(found) == set(NAMES)
    return [float(found[name]) for name in NAMES]


@settings(max_examples=30, deadline=None)
@given(
    shape=st.sampled_from([(1, 1), (3, 5), (2, 8)]),
    seed=st.integers(0, 2**16),
    share=st.floats(0.0, 1.0),
)
def test_they_are_the_definition(shape, seed, share):
    rng = np.random.default_rng(seed)
    pi_a, mu_a = rng.uniform(0.0, 1.0, shape), rng.uniform(0.05, 1.0, shape)
    acted = rng.random(shape) < share
    ratios = np.where(acted, pi_a / mu_a, np.nan)  # what means nothing may be anything
    wanted = oracles.off_policyness(pi_a, mu_a, acted)
    np.testing.assert_allclose(values(ratios, acted), wanted, rtol=1e-5, atol=1e-6)


def test_by_hand():
    """Ratios 0.5, 2, 0.5: mean 1, two of three cut, (3)^2 / (3 (0.25 + 4 + 0.25)) = 2 / 3."""
    found = values([[0.5, 2.0, 0.5, 9.0]], [[True, True, True, False]])
    np.testing.assert_allclose(found, [1.0, 2 / 3, 2 / 3], rtol=1e-6)


def test_on_policy_data_has_ratio_one_and_counts_fully():
    assert values(np.ones((2, 4)), np.ones((2, 4))) == [1.0, 0.0, 1.0]


def test_one_large_ratio_counts_as_one_step():
    for large in (1e30, np.inf):
        found = values([[large, 1e-3, 1e-3, 1e-3]], np.ones((1, 4)))
        assert found[1:] == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("acted", [True, False])
def test_nothing_is_nan(acted):
    assert values(np.zeros((2, 2)), np.full((2, 2), acted)) == [0.0, float(acted), 0.0]


def test_no_gradient_flows_through_them():
    def total(ratios):
        return sum(sequences.off_policyness(ratios, np.ones(3, bool)).values())

    np.testing.assert_array_equal(jax.grad(total)(np.array([0.5, 1.5, 2.0])), np.zeros(3))
