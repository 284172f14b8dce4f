"""ACER's policy gradient and its trust region; errata are numbered as in the list of our notes."""

import compiled_losses as losses
import jax
import numpy as np
import pytest
import scipy.optimize
from compiled_losses import by_hand
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**31)
SIZES = st.sampled_from([1, 3])


def state(seed, size):
    """pi, mu, Q of one state, and a return of each action."""
    rng = np.random.default_rng(seed)
    pi, mu = 0.9 * rng.dirichlet(np.ones(size), 2) + 0.1 / size
    return pi, mu, rng.normal(size=size), rng.normal(size=size)


def gradient(pi, mu, q, v, a, return_, c):
    arrays = [np.float32(x) for x in (pi, mu, q, v)]
    return losses.acer_policy_gradient(*arrays, np.int32(a), np.float32(return_), c)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, size=SIZES, c=st.floats(0, 20), v=st.floats(-2, 2))
def test_the_decomposition_is_unbiased(seed, size, c, v):
    """Eq. 7: with exact values the mean over mu is sum_a (Q^pi(a) - V) grad pi(a), whatever c."""
    pi, mu, q_pi, _ = state(seed, size)
    double = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with double(True):
        total = sum(
            mu[a] * np.asarray(losses.acer_policy_gradient(pi, mu, q_pi, v, a, q_pi[a], c))
            for a in range(size)
        )
    np.testing.assert_allclose(total, q_pi - v, rtol=1e-12, atol=1e-12)


def test_limits_of_c():
    pi, mu, q, returns = state(3, 3)
    v = pi @ q
    importance = [0.0, (returns[1] - v) / mu[1], 0.0]
    np.testing.assert_allclose(gradient(pi, mu, q, v, 1, returns[1], 1e9), importance, rtol=1e-5)
    np.testing.assert_allclose(gradient(pi, mu, q, v, 1, returns[1], 0.0), q - v, rtol=1e-5)
    sampled = {"score": [1, 2], "rho": 3, "advantage": 0.5}
    sampled |= {"score_sampled": [-1, 1], "rho_sampled": 4, "advantage_sampled": 7}
    # Between the limits: 2 * 0.5 * (1, 2) + (1 - 2/4) * 7 * (-1, 1).
    for c, expected in ((1e9, [1.5, 3.0]), (0.0, [-7.0, 7.0]), (2.0, [1.0 - 3.5, 2.0 + 3.5])):
        by_hand(losses.acer_sampled_policy_gradient, expected, 1e-6, c=c, **sampled)


def numerical_projection(g, k, delta):
    """Eq. 11 by a solver that knows nothing of it."""
    result = scipy.optimize.minimize(
        lambda z: 0.5 * np.sum((g - z) ** 2),
        np.zeros_like(g),
        jac=lambda z: z - g,
        constraints={"type": "ineq", "fun": lambda z: delta - k @ z, "jac": lambda z: -k},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 200},  # with 1e-14 one in a thousand fails
    )
    assert result.success, result.message
    return result.x


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, size=SIZES, delta=st.floats(0.01, 3), scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_projection_solves_the_quadratic_programme(seed, size, delta, scale):
    g, k = np.random.default_rng(seed).normal(size=(2, size)) * [[1.0], [scale]]
    actual = losses.trust_region_projection(np.float32(g), np.float32(k), delta)
    tolerance = 1e-4 * max(1.0, delta / np.abs(k).max())
    np.testing.assert_allclose(actual, numerical_projection(g, k, delta), atol=tolerance)
    assert k @ actual <= delta + 1e-4 * max(1.0, scale)


def test_projection_by_hand():
    # k . g = 6: reduced along k until it is 2, or nothing at all.
    for k, delta, expected in (([2, 0], 2, [1, 1]), ([2, 0], 6, [3, 1]), ([-2, 0], 0.1, [3, 1])):
        given = {"gradient": [3, 1], "kl_gradient": k, "delta": delta}
        by_hand(losses.trust_region_projection, expected, **given)


@pytest.mark.parametrize("size", [0.0, 1e-40, 1e-30, 1e30, 3e38])
def test_projection_is_finite_for_any_divergence(size):
    expected = [min(3.0, 1.0 / size) if size else 3.0, -1.0]
    actual = losses.trust_region_projection(np.float32([3, -1]), np.float32([size, 0]), 1.0)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_an_underflown_probability_is_finite():
    """Of TISLR too, whose gradient it is."""
    assert np.isfinite(gradient([0.0, 1.0], [0.5, 0.5], [1.0, 2.0], 0.0, 0, 1.0, 10.0)).all()
