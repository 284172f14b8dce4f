"""N-step returns, three critics' losses and the policy's, against NumPy, by hand, in limits."""

import functools

import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled_losses import f32
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.basics.libraries import distrax, rlax

SEEDS = st.integers(0, 2**31)
ATOMS = jnp.array([-1.0, 0.0, 2.0])
OF_CATEGORICAL = jax.jit(jax.grad(losses.categorical_td_loss, argnums=1, has_aux=True))
OF_SCALAR = jax.jit(jax.grad(losses.scalar_td_loss, has_aux=True))
OF_MIXTURE = jax.jit(
    jax.grad(losses.mixture_of_gaussians_td_loss, argnums=1, has_aux=True),
    static_argnames="num_samples",
)
OF_ACTION = jax.jit(jax.grad(losses.deterministic_policy_gradient_loss))


def window(seed, length):
    """Rewards, and discounts of which some are 0."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=length), rng.random(length) * (rng.random(length) < 0.8)


def mixture(seed, components, spread=1.0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=components),
        spread * rng.normal(size=components),
        np.exp(rng.normal(size=components)),
    )


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, length=st.sampled_from([1, 4]))
def test_n_step_return_is_the_loop(seed, length):
    r_t, discount_t = window(seed, length)
    np.testing.assert_allclose(
        losses.n_step_return(*f32(r_t, discount_t)),
        oracles.n_step_return(r_t, discount_t),
        rtol=1e-5,
    )


def test_n_step_return_by_hand():
    # 1 + 0.5 * 2 + 0.5 * 0.5 * 4 = 3; 0.5^3 = 0.125.
    found = losses.n_step_return(r_t=jnp.array([1.0, 2.0, 4.0]), discount_t=jnp.full(3, 0.5))
    np.testing.assert_allclose(found, (3.0, 0.125))


def test_n_step_return_and_bootstrap_are_rlaxs():
    r_t, discount_t = f32(*window(3, 4))
    return_, discount = losses.n_step_return(r_t, discount_t)
    v_t = jnp.array([5.0, 6.0, 7.0, 8.0])
    peer = jax.jit(functools.partial(rlax.n_step_bootstrapped_returns, n=4))(r_t, discount_t, v_t)
    np.testing.assert_allclose(return_ + discount * v_t[-1], peer[0], rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, discount=st.sampled_from([0.0, 0.5, 1.0]), atoms=st.sampled_from([2, 11]))
def test_categorical_loss_and_priority_are_the_definition(seed, discount, atoms):
    rng = np.random.default_rng(seed)
    support = np.sort(rng.normal(size=atoms)).cumsum() + np.arange(atoms)
    support = np.sort(support)
    logits, probs, return_ = rng.normal(size=atoms), rng.dirichlet(np.ones(atoms)), rng.normal()
    found = losses.categorical_td_loss(*f32(support, logits, return_, discount, probs))
    expected = oracles.categorical_td_loss(support, logits, return_, discount, probs)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_categorical_loss_by_hand_for_three_atoms():
    # Atoms (-1, 0, 2) with (1/2, 1/4, 1/4), return 1, discount 1/2: masses at (1/2, 1, 2).
    # 1/2 is a quarter of the way from 0 to 2, 1 is half of it: (0, 3/8 + 1/8, 1/8 + 1/8 + 1/4).
    probs = jnp.array([0.5, 0.25, 0.25])
    target = np.array([0.0, 0.5, 0.5])
    predicted = np.array([0.2, 0.5, 0.3])
    loss, priority = losses.categorical_td_loss(
        atoms=ATOMS,
        logits_tm1=np.float32(np.log(predicted) + 3.0),
        r_t=jnp.array(1.0),
        discount_t=jnp.array(0.5),
        probs_t=probs,
    )
    np.testing.assert_allclose(loss, -target @ np.log(predicted), rtol=1e-5)
    np.testing.assert_allclose(priority, 0.5 * np.log(0.5 / 0.3), rtol=1e-5)
    # Its gradient is prediction minus target, so the target's mean is 1 + 1/2 * 0 = 1.
    gradient, _ = OF_CATEGORICAL(ATOMS, *f32(np.log(predicted), 1.0, 0.5), probs)
    np.testing.assert_allclose(gradient, predicted - target, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, sizes=st.sampled_from([(1, 1), (3, 2)]), discount=st.floats(0, 1))
def test_mixture_loss_and_priority_are_the_definition(seed, sizes, discount):
    """Some scales of the target are below the smallest one, and so all of them if it is certain."""
    predicted, bootstrap = mixture(seed, sizes[0]), mixture(seed + 1, sizes[1])
    key, return_ = jax.random.key(seed), 0.7
    found = losses.mixture_of_gaussians_td_loss(
        *f32(*predicted, return_, discount, *bootstrap), key, num_samples=4, min_scale=0.3
    )
    values = [return_ + discount * float(sample) for sample in four_samples(key, *f32(*bootstrap))]
    expected = -np.mean([oracles.mixture_log_density(x, *predicted) for x in values])
    np.testing.assert_allclose(found.loss, expected, rtol=1e-4, atol=1e-4)
    expected = oracles.mixture_priority(values, predicted, return_, discount, bootstrap, 0.3)
    np.testing.assert_allclose(found.priority, expected, rtol=1e-3, atol=1e-4)


@jax.jit
def four_samples(key, logits, means, scales):
    components = distrax.Categorical(logits), distrax.Normal(means, scales)
    return distrax.MixtureSameFamily(*components).sample(seed=key, sample_shape=(4,))


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


@pytest.mark.parametrize("min_scale", [0.1, 0.5])
def test_mixture_priority_with_a_raised_scale_is_not_the_kl_divergence(min_scale):
    """Integrals over a grid: samples of N(2, 0.25^2), densities of it with the raised scale."""
    y = np.linspace(-3, 7, 100_001)

    def density(mean, scale):
        return np.exp(-0.5 * ((y - mean) / scale) ** 2) / (scale * np.sqrt(2 * np.pi))

    sampled, target, predicted = (
        density(2, 0.25),
        density(2, max(0.25, min_scale)),
        density(1.8, 0.3),
    )
    log_ratio = np.log(predicted) - np.log(target)
    width = y[1] - y[0]
    expected = np.sum(sampled * (np.exp(log_ratio) - 1 - log_ratio)) * width
    divergence = -np.sum(target * log_ratio) * width
    found = losses.mixture_of_gaussians_td_loss(
        *f32([0.0], [1.8], [0.3], 1.0, 0.5, [0.0], [2.0], [0.5]),
        jax.random.key(0),
        num_samples=100_000,
        min_scale=min_scale,
    )
    np.testing.assert_allclose(found.priority, expected, rtol=0.02)
    assert np.isclose(expected, divergence, rtol=0.02) == (min_scale < 0.25)


@pytest.mark.parametrize("scale", [0.05, 1.0, 300.0])
def test_a_mixture_that_equals_its_target_has_priority_0(scale):
    """Shifted and scaled as the target is; 0.05 after scaling is less than the smallest scale."""
    logits, means = f32([0.0, 1.0], [-0.3, 0.6])
    predicted = logits, 1.0 + 0.5 * means, jnp.full(2, max(0.5 * scale, 0.1))
    bootstrap = logits, means, jnp.full(2, scale)
    found = losses.mixture_of_gaussians_td_loss(
        *predicted, *f32(1.0, 0.5), *bootstrap, jax.random.key(0), num_samples=8, min_scale=0.1
    )
    np.testing.assert_allclose(found.priority, 0.0, atol=1e-6)


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
    found = losses.scalar_td_loss(
        q_tm1=jnp.array(q_tm1), r_t=jnp.array(1.0), discount_t=jnp.array(0.5), q_t=jnp.array(4.0)
    )
    np.testing.assert_allclose(found, (8.0, 4.0))


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, discount=st.floats(0.1, 1.0))
def test_three_critics_agree_on_the_mean(seed, discount):
    """The law of the bootstrap is Gaussian: where each loss has no slope, the mean is the same."""
    rng = np.random.default_rng(seed)
    bootstrap_mean, scale, return_ = rng.normal(), 0.5 + rng.random(), rng.normal()
    mean = return_ + discount * bootstrap_mean

    slope, _ = OF_SCALAR(*f32(mean, return_, discount, bootstrap_mean))
    np.testing.assert_allclose(slope, 0.0, atol=1e-5)

    atoms = np.linspace(-12.0, 12.0, 241)
    density = np.exp(-0.5 * ((atoms - bootstrap_mean) / scale) ** 2)
    probs = density / density.sum()
    gradient, _ = OF_CATEGORICAL(*f32(atoms, np.zeros(241), return_, discount, probs))
    fitted = 1 / 241 - np.asarray(gradient, np.float64)  # gradient = prediction - target
    np.testing.assert_allclose(fitted @ atoms, mean, atol=2e-3)

    samples = 20_000
    gradient, _ = OF_MIXTURE(
        *f32(np.zeros(1), [mean], [discount * scale], return_, discount),
        *f32(np.zeros(1), [bootstrap_mean], [scale]),
        jax.random.key(seed),
        num_samples=samples,
        min_scale=0.01,
    )
    # The slope is the mean of samples (mean - x) / scale^2, whose deviation is known.
    assert abs(gradient[0]) * discount * scale < 5 / np.sqrt(samples)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, max_norm=st.sampled_from([None, 0.1, 1.0, 100.0]))
def test_policy_gradient_is_minus_dq_da(seed, max_norm):
    action, dq_da = np.random.default_rng(seed).normal(size=(2, 3))
    gradient = OF_ACTION(*f32(action, dq_da), max_norm)
    length = np.linalg.norm(dq_da)
    expected = -dq_da if max_norm is None else -dq_da * min(1.0, max_norm / length)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_no_slope_no_gradient(max_norm):
    gradient = OF_ACTION(jnp.ones(3), jnp.zeros(3), max_norm)
    np.testing.assert_array_equal(gradient, np.zeros(3))
