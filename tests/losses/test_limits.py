"""Losses at the ends of their domains: no transitions, and no truncation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax import losses

NONE, ROWS, TAKEN = np.zeros(0, np.float32), np.zeros((0, 3), np.float32), np.zeros(0, np.int32)
ATOMS, PAIR = np.linspace(-1, 1, 5, dtype=np.float32), losses.signed_hyperbolic_pair()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("expected_off_policy_return", (ROWS, TAKEN, NONE, NONE, ROWS, NONE)),
        ("transformed_off_policy_return", (ROWS, TAKEN, NONE, NONE, ROWS, NONE, PAIR)),
        ("transformed_n_step_double_q_return", (ROWS, ROWS, NONE, NONE, NONE, 1, PAIR)),
        (
            "distributional_off_policy_target",
            (ATOMS, np.zeros((0, 3, 5), np.float32), TAKEN, NONE, NONE, ROWS, NONE),
        ),
        ("q_retrace", 5 * (NONE,)),
        ("q_opc", 5 * (NONE,)),
        ("importance_sampled_return", 5 * (NONE,)),
        ("truncated_importance_trajectory", 6 * (NONE,)),
        ("n_step_return", 2 * (NONE,)),
        ("sequence_priority", (NONE, NONE > 0, 0.9)),
    ],
)
def test_a_window_without_transitions_is_refused(name, arguments):
    with pytest.raises(AssertionError, match="dimension greater than '0' on axis '0'"):
        getattr(losses, name)(*arguments)


@pytest.mark.parametrize("mu", [[0.5, 0.25, 0.25], [0.5, 0.0, 0.5]])
def test_an_infinite_truncation_is_importance_sampling(mu):
    """Also where mu is 0 for an action that was not taken: infinity times 0 is NaN."""
    pi, q, v, return_, a = np.float32([0.2, 0.5, 0.3]), np.float32([1, 2, 3]), 1.5, 4.0, 0
    expected = np.zeros(3)
    expected[a] = (return_ - v) / mu[a]
    arguments = jnp.float32(mu), q, jnp.float32(v), a, jnp.float32(return_), np.inf
    found = losses.acer_policy_gradient(pi, *arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(-jax.grad(losses.tislr_loss)(pi, *arguments), expected, rtol=1e-6)
