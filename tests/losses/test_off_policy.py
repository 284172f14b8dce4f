"""Targets against their definitions, and examples by hand."""

import functools

import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled_losses import by_hand, single, window
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.losses import distributional_off_policy_target

# Two shapes only, since each is compiled on its own; values and episode ends vary freely.
SHAPES = st.sampled_from([(1, 1, 2), (6, 3, 5)])


@functools.cache
def on_constant_atoms(size):
    """The target on `size` atoms of equal distances that are no argument."""
    atoms = np.linspace(-2, 3, size, dtype=np.float32)
    return jax.jit(functools.partial(distributional_off_policy_target, atoms))


@pytest.mark.parametrize("constant", [False, True])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), shape=SHAPES, ends=st.floats(0, 0.6))
def test_distributional_target_is_the_papers_triple_sum(constant, seed, shape, ends):
    """On unequal atoms, and on a constant support of equal distances, which has its own way."""
    rng, (horizon, num_actions, num_atoms) = np.random.default_rng(seed), shape
    arrays = window(rng, horizon, num_actions, ends)
    arrays["c_t"] *= rng.uniform(0, 3)  # importance sampling's may exceed 1
    arrays["q_t"] = rng.dirichlet(np.ones(num_atoms), (horizon, num_actions))
    atoms = np.linspace(-2, 3, num_atoms) if constant else np.sort(rng.uniform(-3, 3, num_atoms))
    atoms, arrays = single(atoms), {name: single(x) for name, x in arrays.items()}
    expected = oracles.distributional_off_policy_target(atoms, **arrays)
    if constant:
        target = on_constant_atoms(num_atoms)(**arrays)
    else:
        target = losses.distributional_off_policy_target(atoms, **arrays)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(target, expected, atol=2e-5 * scale)
    np.testing.assert_allclose(target.sum(-1), 1.0, atol=2e-5 * scale)


def test_a_sample_can_have_negative_entries_that_vanish_in_expectation():
    # Two steps, all returns 0 but for the value -1 of action 0 at the middle step. With c = 1 and
    # pi(0) = 1/2, alpha_{1,0} = 1/2 - 1: the mass on that value is negative if action 0 is taken.
    certain = np.float32([[[1, 0, 0], [0, 1, 0]], [[0, 1, 0], [0, 1, 0]]])
    atoms, zeros, ones = np.float32([-1, 0, 1]), np.zeros(2, np.float32), np.ones(2, np.float32)
    zero, one = (
        losses.distributional_off_policy_target(
            atoms, certain, jnp.array([action, 0]), zeros, ones, np.full((2, 2), 0.5, "f4"), ones
        )[0]
        for action in (0, 1)
    )
    np.testing.assert_allclose(zero, [-0.5, 1.5, 0.0])
    np.testing.assert_allclose(0.5 * (zero + one), [0.0, 1.0, 0.0], atol=1e-7)


def test_coefficients_by_hand():
    pi, mu = {"pi_a": [0.5, 0.2, 0.0], "lambda_": 0.9}, {"mu_a": [0.25, 0.8, 0.5]}
    by_hand(losses.retrace_coefficients, [0.9, 0.225, 0.0], **pi, **mu)
    by_hand(losses.tree_backup_coefficients, [0.45, 0.18, 0.0], **pi)
    by_hand(losses.importance_coefficients, [1.8, 0.225, 0.0], **pi, **mu)
