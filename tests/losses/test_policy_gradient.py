"""Gradients are minus the estimators of Reactor, section 3.1; bias and unbiasedness."""

import functools

import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import oracles
from compiled_losses import by_hand, f32
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**31)
SIZES = st.sampled_from([1, 3])


def bandit(seed, num_actions):
    """A softmax policy with logits as parameters, a behaviour policy, and true and wrong values."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=num_actions)
    pi = np.exp(logits) / np.exp(logits).sum()
    grad_pi = np.diag(pi) - np.outer(pi, pi)  # [a, parameter]
    mu = 0.8 * rng.dirichlet(np.ones(num_actions)) + 0.2 / num_actions
    q_pi = rng.normal(size=num_actions)
    q = q_pi + rng.normal(size=num_actions)
    return logits.astype(np.float32), pi, grad_pi, mu, q_pi, q


@functools.partial(jax.jit, static_argnums=0)
def minus_gradient(loss, logits, *arguments):
    """The estimator that a loss stands for, with respect to the logits."""
    return -jax.grad(lambda x: loss(jax.nn.softmax(x), *arguments))(logits)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, size=SIZES, c=st.floats(1, 20))
def test_gradients_are_minus_the_estimators(seed, size, c):
    logits, pi, grad_pi, mu, _, q = bandit(seed, size)
    rng = np.random.default_rng(seed)
    a, return_, v = int(rng.integers(size)), rng.normal(), rng.normal()
    beta = min(c, 1 / mu[a])
    loo, truncated = (q, a, return_), (mu, q, v, a, return_, c)
    for loss, arguments, estimator in [
        (losses.beta_loo_loss, (*loo, beta), oracles.beta_leave_one_out(grad_pi, *loo, beta)),
        (losses.islr_loss, (mu[a], v, a, return_), oracles.islr(grad_pi, pi, mu, v, a, return_)),
        (losses.tislr_loss, truncated, oracles.tislr(grad_pi, pi, *truncated)),
    ]:
        found = minus_gradient(loss, logits, *f32(*arguments))
        np.testing.assert_allclose(found, estimator, rtol=2e-4, atol=2e-4)


def expected_estimate(loss, logits, mu, arguments):
    """The expectation over the behaviour policy's action a, of `arguments(a)`."""
    estimates = [minus_gradient(loss, logits, *f32(*arguments(a))) for a in range(len(mu))]
    return sum(p * estimate for p, estimate in zip(mu, estimates, strict=True))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, size=SIZES, c=st.floats(1, 5) | st.just(np.inf))
def test_bias_of_beta_loo_is_proposition_1(seed, size, c):
    """Without a cap beta is 1 / mu, and nothing is left of the bias, whatever Q."""
    logits, _, grad_pi, mu, q_pi, q = bandit(seed, size)
    beta = np.minimum(c, 1 / mu)
    expected = expected_estimate(
        losses.beta_loo_loss, logits, mu, lambda a: (q, a, q_pi[a], beta[a])
    )
    bias = oracles.proposition_1(grad_pi, q, q_pi, mu, beta)
    np.testing.assert_allclose(expected - q_pi @ grad_pi, bias, rtol=1e-3, atol=1e-4)
    if c == np.inf:
        np.testing.assert_allclose(bias, np.zeros(size), atol=1e-12)


def test_leave_one_out_by_hand():
    # pi = (1/2, 1/2), Q = (1, 2), action 0 returned 3: -(1 * (3 - 1) * 1/2 + 1/2 + 1) = -2.5.
    by_hand(losses.beta_loo_loss, -2.5, pi=[0.5, 0.5], q=[1, 2], a=0, return_=3, beta=1)


def test_beta_is_one_at_c_one_and_on_padding_where_other_losses_are_zero():
    by_hand(losses.truncated_beta, [1, 1, 1], mu_a=[0.01, 0.25, 1], c=1)
    by_hand(losses.truncated_beta, [5, 4, 1], mu_a=[0.01, 0.25, 1], c=5)
    by_hand(losses.truncated_beta, [1, 1], mu_a=[0, 0], c=np.inf)
    given = {"pi": [0.5, 0.5], "v": 0, "a": 0, "return_": 1}
    by_hand(losses.islr_loss, 0, mu_a=0, **given)
    by_hand(losses.tislr_loss, 0, mu=[0, 0], q=[1, 2], c=np.inf, **given)


def test_entropy():
    by_hand(losses.policy_entropy, np.log(4), 1e-6, pi=[0.25, 0.25, 0.25, 0.25])
    assert 0 <= losses.policy_entropy(np.float32([1, 0])) < 1e-35
    slope = jax.grad(losses.policy_entropy)(jnp.array([0.5, 0, 0.5]))
    np.testing.assert_allclose(slope, [np.log(2) - 1, 0, np.log(2) - 1], rtol=1e-6)
