"""Rescaled returns against their definitions; the inverse as it is printed is shown wrong."""

import chex
import compiled_losses as losses
import jax
import numpy as np
import pytest
from compiled_losses import single, window

from retrax.losses import signed_hyperbolic_pair

EPS = 1e-3
PAIR = signed_hyperbolic_pair(EPS)


def random_window(seed):
    return {name: single(x) for name, x in window(np.random.default_rng(seed), ends=0.3).items()}


def test_transform_has_a_slope_at_zero():
    slope, inverse = (jax.jit(jax.grad(function))(0.0) for function in PAIR)
    np.testing.assert_allclose([slope, inverse], [0.5 + EPS, 1 / (0.5 + EPS)], rtol=1e-5)


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
