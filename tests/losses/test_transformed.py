"""Rescaled returns against their definitions; the inverse as it is printed is shown wrong."""

import functools

import chex
import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_losses import by_hand, single, window

from retrax.basics.libraries import rlax
from retrax.losses import signed_hyperbolic_pair, transformed_n_step_double_q_return

EPS = 1e-3
PAIR = signed_hyperbolic_pair(EPS)


def random_window(seed, ends=0.3):
    return {name: single(x) for name, x in window(np.random.default_rng(seed), ends=ends).items()}


def test_transform_has_a_slope_at_zero():
    slope, inverse = (jax.jit(jax.grad(function))(0.0) for function in PAIR)
    np.testing.assert_allclose([slope, inverse], [0.5 + EPS, 1 / (0.5 + EPS)], rtol=1e-5)


def test_transformed_retrace_agrees_with_rlax():
    window = random_window(0, ends=0.0)
    mu_t = np.random.default_rng(1).uniform(0.2, 1.0, 7).astype(np.float32)
    pi_a = window["pi_t"][np.arange(7), window["a_t"]]
    window["c_t"] = losses.retrace_coefficients(pi_a, mu_t, 0.9)
    q_tm1 = jnp.zeros((7, 3))
    pair = rlax.TxPair(PAIR.apply, PAIR.invert)
    arrays = [window[name] for name in ("q_t", "a_t", "a_t", "r_t", "discount_t", "pi_t")]
    retrace = jax.jit(functools.partial(rlax.transformed_retrace, tx_pair=pair))
    theirs = retrace(q_tm1, *arrays, mu_t, 0.9)
    ours = losses.transformed_off_policy_return(**window, transform=PAIR)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_without_a_transform_it_is_the_expected_return():
    window = random_window(3)
    chex.assert_trees_all_equal(
        losses.transformed_off_policy_return(**window, transform=losses.IDENTITY),
        losses.expected_off_policy_return(**window),
    )


def test_n_step_double_q_by_hand():
    """Without a transform: the selector picks action 1, worth 10; step 2 is a truncation."""
    q_t = np.array([[9.0, 2.0], [0.0, 10.0], [5.0, 4.0]], np.float32)
    selector = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], np.float32)
    r_t = np.array([1.0, 2.0, 4.0], np.float32)
    half = np.full(3, 0.5, np.float32)
    c_t = np.array([1.0, 0.0, 1.0], np.float32)
    result = transformed_n_step_double_q_return(q_t, selector, r_t, half, c_t, 3, losses.IDENTITY)
    np.testing.assert_allclose(result, [1 + 0.5 * (2 + 0.5 * 10), 2 + 0.5 * 10, 4 + 0.5 * 4])


def test_sequence_priority_by_hand():
    """Errors -4, 1 and a masked 100: 0.9 * 4 + 0.1 * 2.5."""
    given = {"td_error": [-4, 1, 100], "mask": [1, 1, 0]}
    by_hand(losses.sequence_priority, 3.85, 1e-6, eta=0.9, **given)


def test_a_return_of_no_steps_is_refused():
    window = random_window(0)
    arrays = window["q_t"], window["q_t"], window["r_t"], window["discount_t"], window["c_t"]
    with pytest.raises(ValueError, match="n must be at least 1 step, got 0"):
        losses.transformed_n_step_double_q_return(*arrays, 0, PAIR)
