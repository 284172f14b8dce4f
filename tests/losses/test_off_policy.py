"""Targets against their definitions, and examples by hand."""

import functools

import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled_losses import by_hand
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.losses import distributional_off_policy_target


def random_window(seed, horizon, num_actions, num_atoms, terminations=0.2):
    """Arrays at destination steps; a termination has discount 0, a cut trace c = 0."""
    rng = np.random.default_rng(seed)
    pi_t = rng.dirichlet(np.ones(num_actions), horizon)
    mu_t = rng.dirichlet(np.ones(num_actions), horizon)
    a_t = rng.integers(num_actions, size=horizon)
    taken = (np.arange(horizon), a_t)
    discount_t = np.where(rng.random(horizon) < terminations, 0.0, rng.uniform(0.8, 1.0, horizon))
    return {
        "atoms": np.sort(rng.uniform(-3, 3, num_atoms)),
        "q_t": rng.dirichlet(np.ones(num_atoms), (horizon, num_actions)),
        "a_t": a_t,
        "r_t": rng.normal(size=horizon),
        "discount_t": discount_t,
        "pi_t": pi_t,
        "pi_a": pi_t[taken],
        "mu_a": mu_t[taken],
    }


def single(tree):
    return jax.tree.map(lambda x: x.astype(np.int32 if x.dtype.kind == "i" else np.float32), tree)


def with_traces(window, c_t):
    kept = ("atoms", "q_t", "a_t", "r_t", "discount_t", "pi_t")
    return single({**{name: window[name] for name in kept}, "c_t": np.asarray(c_t)})


WINDOWS = {"seed": st.integers(0, 2**31), "lambda_": st.floats(0, 1), "end": st.floats(0, 0.6)}
# Two shapes only, since each is compiled on its own; values and episode ends vary freely.
SHAPES = st.sampled_from([(1, 1, 2), (6, 3, 5)])


@functools.cache
def on_constant_atoms(size):
    """The target on `size` atoms of equal distances that are no argument."""
    atoms = np.linspace(-2, 3, size, dtype=np.float32)
    return jax.jit(functools.partial(distributional_off_policy_target, atoms))


@pytest.mark.parametrize("kind", ["retrace", "tree_backup", "importance"])
@pytest.mark.parametrize("constant", [False, True])
@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, **WINDOWS)
def test_distributional_target_is_the_papers_triple_sum(kind, constant, seed, shape, lambda_, end):
    """On unequal atoms, and on a constant support of equal distances, which has its own way."""
    window = random_window(seed, *shape, terminations=end)
    if constant:
        window["atoms"] = np.linspace(-2, 3, shape[-1])
    c_t = {
        "retrace": losses.retrace_coefficients(window["pi_a"], window["mu_a"], lambda_),
        "tree_backup": losses.tree_backup_coefficients(window["pi_a"], lambda_),
        "importance": losses.importance_coefficients(
            window["pi_a"], np.maximum(window["mu_a"], 0.05), lambda_
        ),
    }[kind]
    arrays = with_traces(window, c_t)
    expected = oracles.distributional_off_policy_target(**arrays)
    if constant:
        del arrays["atoms"]
        target = on_constant_atoms(shape[-1])(**arrays)
    else:
        target = losses.distributional_off_policy_target(**arrays)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(target, expected, atol=2e-5 * scale)
    np.testing.assert_allclose(target.sum(-1), 1.0, atol=2e-5 * scale)


def test_one_step_by_hand():
    # One step, reward 1, discount 0.5, values 0 or 2 with certainty: 1 + 0.5 * 2 = 2 for action 1.
    given = {"atoms": [0, 1, 2], "q_t": [[[1, 0, 0], [0, 0, 1]]], "a_t": [0], "r_t": [1]}
    given |= {"discount_t": [0.5], "pi_t": [[0.25, 0.75]]}
    # The trace of the last step is taken as 0.
    by_hand(losses.distributional_off_policy_target, [[0, 0.25, 0.75]], c_t=[1], **given)


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
