"""Rescaled returns against their definitions; the inverse as it is printed is shown wrong."""

import functools

import chex
import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_losses import single, window

from retrax.basics.libraries import rlax
from retrax.losses import signed_hyperbolic_pair

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


def test_a_return_of_no_steps_is_refused():
    window = random_window(0)
    arrays = window["q_t"], window["q_t"], window["r_t"], window["discount_t"], window["c_t"]
    with pytest.raises(ValueError, match="n must be at least 1 step, got 0"):
        losses.transformed_n_step_double_q_return(*arrays, 0, PAIR)
