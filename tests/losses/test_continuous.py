"""The mixture's and the scalar critic's losses and the policy's: definitions, by hand, limits."""

import functools

import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled_losses import by_hand, f32
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**31)
OF_ACTION = jax.jit(jax.grad(losses.deterministic_policy_gradient_loss))


def mixture(seed, components):
    logits, means, scales = np.random.default_rng(seed).normal(size=(3, components))
    return logits, means, np.exp(scales)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, sizes=st.sampled_from([(1, 1), (3, 2)]), discount=st.floats(0, 1))
def test_mixture_loss_and_priority_are_the_definition(seed, sizes, discount):
    """Some scales of the target are below the smallest one, and so all of them if it is certain."""
    predicted, bootstrap = mixture(seed, sizes[0]), mixture(seed + 1, sizes[1])
    key, return_ = jax.random.key(seed), 0.7
    found = losses.mixture_of_gaussians_td_loss(
        *f32(*predicted, return_, discount, *bootstrap), key, num_samples=4, min_scale=0.3
    )
    samples = oracles.mixture_samples(key, 4, *f32(*bootstrap))
    values = [return_ + discount * sample for sample in samples]
    expected = -np.mean([oracles.mixture_log_density(x, *predicted) for x in values])
    np.testing.assert_allclose(found.loss, expected, rtol=1e-4, atol=1e-4)
    expected = oracles.mixture_priority(values, predicted, return_, discount, bootstrap, 0.3)
    np.testing.assert_allclose(found.priority, expected, rtol=1e-3, atol=1e-4)


def test_mixture_priority_is_an_estimate_of_the_kl_divergence():
    """Of Gaussians N(1 + 1/2 * 2, (1/2 * 3)^2) and N(1, 2^2), in closed form; not below 0."""
    predicted, bootstrap = f32([0.0], [1.0], [2.0]), f32([0.0], [2.0], [3.0])

    def priority(key, num_samples):
        return losses.mixture_of_gaussians_td_loss(
            *predicted, *f32(1.0, 0.5), *bootstrap, key, num_samples=num_samples, min_scale=0.1
        ).priority

    expected = np.log(2 / 1.5) + (1.5**2 + 1) / (2 * 2**2) - 0.5
    np.testing.assert_allclose(priority(jax.random.key(0), 100_000), expected, rtol=0.02)
    keys = jax.random.split(jax.random.key(1), 50_000)
    each = jax.jit(jax.vmap(lambda key: priority(key, 2)))(keys)
    np.testing.assert_allclose(np.mean(each), expected, rtol=0.02)
    assert (each >= 0).all()


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3])
def test_mixture_loss_is_finite_and_bounded_below_for_any_scale(scale):
    scales = np.full(2, scale, np.float32)
    for means in np.float32([[-200.0, 500.0], [3.0, 3.0]]):
        (value, priority), gradients = of_certain_target(means, scales, scale)
        assert all(np.isfinite(leaf).all() for leaf in (value, priority, *gradients))
    # At the target itself, the last, the density is the largest there is.
    least = np.log(scale) + 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(value, least, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(priority, 0.0, atol=1e-4)


@jax.jit
@functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
def of_certain_target(means, scales, min_scale):
    return losses.mixture_of_gaussians_td_loss(
        jnp.zeros(2), means, scales, *f32(3.0, 0.0), *f32(*mixture(0, 2)), jax.random.key(1),
        num_samples=3, min_scale=min_scale,
    )  # fmt: skip


@pytest.mark.parametrize("q_tm1", [-1.0, 7.0])
def test_scalar_loss_by_hand(q_tm1):
    # The error is 1 + 0.5 * 4 - q_tm1, 4 and -4: half its square is 8.
    by_hand(losses.scalar_td_loss, (8.0, 4.0), q_tm1=q_tm1, r_t=1, discount_t=0.5, q_t=4)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, max_norm=st.sampled_from([None, 0.1, 1.0, 100.0]))
def test_policy_gradient_is_minus_dq_da(seed, max_norm):
    action, dq_da = np.random.default_rng(seed).normal(size=(2, 3))
    gradient = OF_ACTION(*f32(action, dq_da), max_norm)
    length = np.linalg.norm(dq_da)
    expected = -dq_da if max_norm is None else -dq_da * min(1.0, max_norm / length)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(OF_ACTION(*f32(action, 0 * dq_da), max_norm), np.zeros(3))
