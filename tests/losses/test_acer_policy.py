"""ACER's policy gradient and its trust region; errata are numbered as in the list of our notes."""

import chex
import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.losses import trust_region_projection

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


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, size=SIZES, c=st.floats(0, 20))
def test_one_step_is_the_pseudo_code(seed, size, c):
    pi, mu, q, returns = state(seed, size)
    a = seed % size
    v = pi @ q
    steps = oracles.acer_discrete_steps(
        [pi, pi], [pi, pi], [q, q], [mu, mu], [a, 0], [0, returns[a]], [1, 0], [False, True],
        c=c, delta=None,
    )  # fmt: skip
    actual = gradient(pi, mu, q, v, a, returns[a], c)
    np.testing.assert_allclose(actual, steps[0][1], rtol=2e-4, atol=2e-4)


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
    importance = np.zeros(3)
    importance[1] = (returns[1] - v) / mu[1]
    np.testing.assert_allclose(gradient(pi, mu, q, v, 1, returns[1], 1e9), importance, rtol=1e-5)
    np.testing.assert_allclose(gradient(pi, mu, q, v, 1, returns[1], 0.0), q - v, rtol=1e-5)
    sampled = {
        "score": jnp.array([1.0, 2.0]),
        "rho": jnp.float32(3.0),
        "advantage": jnp.float32(0.5),
        "score_sampled": jnp.array([-1.0, 1.0]),
        "rho_sampled": jnp.float32(4.0),
        "advantage_sampled": jnp.float32(7.0),
    }
    infinite = losses.acer_sampled_policy_gradient(**sampled, c=1e9)
    np.testing.assert_allclose(infinite, [1.5, 3.0], rtol=1e-6)
    zero = losses.acer_sampled_policy_gradient(**sampled, c=0.0)
    np.testing.assert_allclose(zero, [-7.0, 7.0])
    # 2 * 0.5 * (1, 2) + (1 - 2/4) * 7 * (-1, 1)
    middle = losses.acer_sampled_policy_gradient(**sampled, c=2.0)
    np.testing.assert_allclose(middle, [1.0 - 3.5, 2.0 + 3.5])


def test_erratum_1_the_correction_has_the_value_of_every_action():
    pi, mu = np.array([0.6, 0.4]), np.array([0.1, 0.9])  # rho(0) = 6 > c
    low, high = (gradient(pi, mu, [q, 1.0], 0.0, 1, 0.0, 2.0) for q in (-3.0, 3.0))
    np.testing.assert_allclose(high[0] - low[0], 6 * (1 - 2 / 6), rtol=1e-5)
    np.testing.assert_allclose(high[1], low[1])


def test_erratum_4_the_correction_is_the_positive_part():
    pi, mu, q, returns = state(5, 3)
    c = float((pi / mu).max()) + 0.1
    first = gradient(pi, mu, q, 0.2, 2, returns[2], c)
    second = gradient(pi, mu, q + 5.0, 0.2, 2, returns[2], c)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first[:2], [0.0, 0.0])


def test_erratum_11_statistics_are_probabilities():
    """grad log pi(a) is 1 / pi(a) at a and 0 elsewhere; with respect to logits it is not."""
    actual = gradient([0.25, 0.75], [0.25, 0.75], [0.0, 0.0], 1.0, 0, 3.0, 10.0)
    np.testing.assert_allclose(actual, [(3.0 - 1.0) / 0.25, 0.0])


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, size=SIZES, c=st.floats(1, 10))
def test_erratum_15_on_policy_there_is_no_correction(seed, size, c):
    pi, _, q, returns = state(seed, size)
    a = seed % size
    expected = np.zeros(size)
    expected[a] = (returns[a] - 0.3) / pi[a]
    # c >= 1 = rho: values of other actions do not enter.
    actual = gradient(pi, pi, q, 0.3, a, returns[a], max(c, 1.0 + 1e-5))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def numerical_projection(g, k, delta):
    """Eq. 11 by a solver that knows nothing of it."""
    result = scipy.optimize.minimize(
        lambda z: 0.5 * np.sum((g - z) ** 2),
        np.zeros_like(g),
        jac=lambda z: z - g,
        constraints={"type": "ineq", "fun": lambda z: delta - k @ z, "jac": lambda z: -k},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 200},
    )
    assert result.success, result.message
    return result.x


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, size=SIZES, delta=st.floats(0.01, 3), scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_projection_solves_the_quadratic_programme(seed, size, delta, scale):
    rng = np.random.default_rng(seed)
    g, k = rng.normal(size=(2, size)) * [[1.0], [scale]]
    actual = losses.trust_region_projection(np.float32(g), np.float32(k), delta)
    tolerance = 1e-4 * max(1.0, delta / np.abs(k).max())
    np.testing.assert_allclose(actual, numerical_projection(g, k, delta), atol=tolerance)
    np.testing.assert_allclose(actual, oracles.trust_region(g, k, delta), rtol=1e-4, atol=1e-4)
    assert k @ actual <= delta + 1e-4 * max(1.0, scale)


def test_projection_by_hand():
    g, k = jnp.array([3.0, 1.0]), jnp.array([2.0, 0.0])
    # k . g = 6: reduced along k until it is 2.
    np.testing.assert_allclose(losses.trust_region_projection(g, k, 2.0), [1.0, 1.0])
    np.testing.assert_array_equal(losses.trust_region_projection(g, k, 6.0), g)
    np.testing.assert_array_equal(losses.trust_region_projection(g, -k, 0.1), g)


@pytest.mark.parametrize("size", [0.0, 1e-40, 1e-30, 1e30, 3e38])
def test_projection_is_finite_for_any_divergence(size):
    g = jnp.array([3.0, -1.0])
    k = jnp.array([size, 0.0], jnp.float32)
    actual = losses.trust_region_projection(g, k, 1.0)
    expected = [min(3.0, 1.0 / size) if size else 3.0, -1.0]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_erratum_12b_the_projection_is_not_that_of_a_mean():
    rng = np.random.default_rng(2)
    g, k = rng.normal(size=(2, 8, 3)).astype(np.float32)
    project = jax.vmap(losses.trust_region_projection, in_axes=(0, 0, None))
    each = np.mean(project(g, k, 0.1), axis=0)
    whole = losses.trust_region_projection(g.mean(0), k.mean(0), 0.1)
    assert np.abs(each - whole).max() > 0.05
    np.testing.assert_allclose(
        each, np.mean([oracles.trust_region(x, y, 0.1) for x, y in zip(g, k, strict=True)], 0),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_gradients_take_no_gradient_and_stay_finite():
    pi, mu, _, _ = map(jnp.float32, state(0, 3))

    @jax.jit
    @jax.jacrev
    def jacobians(x):
        return (
            losses.acer_policy_gradient(x, mu, x, x[0], 1, x[1], 2.0),
            losses.trust_region_projection(x, x, x[0]),
            losses.acer_sampled_policy_gradient(x, x[0], x[1], x, x[0], x[1], 2.0),
        )

    for jacobian in jacobians(pi):
        np.testing.assert_array_equal(jacobian, np.zeros((3, 3)))
    underflown = gradient([0.0, 1.0], [0.5, 0.5], [1.0, 2.0], 0.0, 0, 1.0, 10.0)
    assert np.isfinite(underflown).all()


def test_batches_are_refused():
    with pytest.raises(AssertionError, match="rank"):
        losses.trust_region_projection(jnp.zeros((2, 3)), jnp.zeros((2, 3)), 1.0)
    with pytest.raises(AssertionError, match="rank"):
        gradient(np.full((2, 2), 0.5), np.full((2, 2), 0.5), np.zeros((2, 2)), 0.0, 0, 1.0, 1.0)


class Variants(chex.TestCase):
    @chex.all_variants(with_pmap=False)
    def test_batched_and_jitted_are_the_unbatched(self):
        g, k = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
        batched = self.variant(jax.vmap(lambda x, y: trust_region_projection(x, y, 0.2)))(g, k)
        single = [losses.trust_region_projection(x, y, 0.2) for x, y in zip(g, k, strict=True)]
        np.testing.assert_allclose(batched, np.stack(single), rtol=1e-5, atol=1e-6)
