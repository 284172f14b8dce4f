"""ACER's targets; errata are numbered as in the list of our notes."""

import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_losses import by_hand, f32
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**31)
OF_THE_VALUE = jax.jit(jax.value_and_grad(losses.importance_weighted_value_loss, argnums=1))


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, size=st.sampled_from([1, 5]))
def test_erratum_7_v_target_corrects_at_its_own_state(seed, size):
    """Eq. 24 and 25, all at x_t: its expectation under mu is V + E_mu[min(1, rho)(Q_ret - Q)]."""
    rng = np.random.default_rng(seed)
    pi, mu = rng.dirichlet(np.ones(size), 2)
    q, q_pi = rng.normal(size=(2, size))
    rho = pi / mu
    targets = losses.v_target(*f32(q_pi, q, np.full(size, pi @ q), rho))
    before = mu @ (np.minimum(1, rho) * q_pi) + pi @ (np.maximum(1 - 1 / rho, 0) * q)
    np.testing.assert_allclose(mu @ targets, before, atol=1e-5)


def test_erratum_8_importance_sampling_discounts():
    given = {"v_t": [9, 4], "r_t": [1, 2], "discount_t": [0.5, 0.25], "rho_t": [3, 9]}
    expected = [1 + 0.5 * 3 * 3, 3]
    by_hand(losses.importance_sampled_return, expected, continues_t=[1, 1], **given)


def test_erratum_17_the_root_is_retraces_alone():
    given = {"q_t": [0, 1], "v_t": [0, 0], "r_t": [0, 1], "discount_t": [1, 1]}
    # 0.0625 ** (1 / 4)
    by_hand(losses.q_retrace, [0.5, 1.0], rho_t=[0.0625, 1], exponent=0.25, **given)
    by_hand(losses.v_target, 0.0625, return_=1, q=0, v=0, rho=0.0625)


def test_the_mean_of_a_dueling_network_over_the_policy_is_the_value():
    # Two actions of probability 1/4 and 3/4, two samples: all eight cases.
    pi, advantage = np.array([0.25, 0.75]), np.float32([2.0, -1.0])
    total = 0.0
    for a, u, w in np.ndindex(2, 2, 2):
        q = losses.stochastic_dueling(np.float32(0.7), advantage[a], advantage[[u, w]])
        total += pi[a] * pi[u] * pi[w] * float(q)
    np.testing.assert_allclose(total, 0.7, rtol=1e-6)


@pytest.mark.parametrize("log_rho", [200.0, -200.0])
def test_importance_sampled_returns_of_extreme_ratios_are_clipped(log_rho):
    rho = jnp.exp(jnp.full(4, log_rho))
    v, r = np.float32([5, 6, 7, 8]), np.float32([0, 0, 0, 2])
    discount, go = np.float32([1, 1, 0, 0.5]), np.float32([1, 1, 1, 1])
    returns = losses.importance_sampled_return(v, r, discount, rho, go)
    # The last: 2 + 0.5 * 8. Before it a termination without a reward: 0, whatever the ratio.
    np.testing.assert_array_equal(returns, [0, 0, 0, 6])
    returns = losses.importance_sampled_return(v, r, np.full(4, 0.5, np.float32), rho, go)
    before = 2.0**63 if log_rho > 0 else 0.0
    np.testing.assert_array_equal(returns, [before, before, before, 6])
    negative = losses.importance_sampled_return(-v, -r, np.full(4, 0.5, np.float32), rho, go)
    np.testing.assert_array_equal(negative, -returns)


def test_the_importance_weighted_loss_of_the_value():
    # 3 / 2 * (5 - 1)^2 = 24; its gradient is -3 * 4.
    value, gradient = OF_THE_VALUE(*np.float32([5.0, 1.0, 3.0]))
    np.testing.assert_array_equal([value, gradient], [24.0, -12.0])


@pytest.mark.parametrize("error", [0.0, 0.5, 3.0, 2.0**63])
@pytest.mark.parametrize("log_rho", [200.0, -200.0])
def test_the_importance_weighted_loss_is_finite_for_extreme_ratios(error, log_rho):
    arrays = (jnp.float32(error), jnp.float32(0.0), jnp.exp(jnp.float32(log_rho)))
    value, gradient = OF_THE_VALUE(*arrays)
    assert np.isfinite([value, gradient]).all()
    if log_rho < 0 or not error:
        np.testing.assert_array_equal([value, gradient], 0.0)
    else:
        assert gradient < -(2.0**30)
