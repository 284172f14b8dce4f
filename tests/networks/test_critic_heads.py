"""Heads of critics: means, losses and metrics by their definitions; what a priority needs."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax import losses
from retrax.networks import Categorical, MixtureOfGaussians, Scalar

HEADS = {
    "categorical": Categorical(num_atoms=5, vmin=-2.0, vmax=3.0),
    "mixture_of_gaussians": MixtureOfGaussians(num_components=2, num_samples=4, min_scale=0.5),
    "scalar": Scalar(),
}


def outputs(head, seed):
    size = head.num_outputs
    return jnp.asarray(np.random.default_rng(seed).normal(size=size), jnp.float32)


def f32(*values):
    return [jnp.asarray(value, jnp.float32) for value in values]


@pytest.mark.parametrize("name", HEADS)
def test_mean_and_its_gradient_are_the_definition(name):
    head = HEADS[name]
    x = outputs(head, 0)
    config = {"critic": name, "vmin": -2.0, "vmax": 3.0, "num_atoms": 5}
    config |= {"mixture_min_scale": 0.5, "return_unit": 1.0}
    _, _, mean, gradient = oracles.d4pg_critic(x, 0.0, 1.0, x, config, [0.0])
    np.testing.assert_allclose(head.mean(x), mean, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(head.mean)(x), gradient, rtol=1e-4, atol=1e-6)


def test_means_by_hand():
    three = Categorical(3, -1.0, 1.0)
    np.testing.assert_allclose(three.mean(jnp.log(jnp.array([0.5, 0.25, 0.25]))), -0.25, rtol=1e-6)
    two = MixtureOfGaussians(2)
    x = jnp.concatenate([jnp.log(jnp.array([0.25, 0.75])), jnp.array([4.0, 8.0]), jnp.ones(2)])
    np.testing.assert_allclose(two.mean(x), 7.0, rtol=1e-6)
    assert Scalar().mean(jnp.array([3.0])) == 3.0


def test_units_change_the_outputs_alone():
    """A head with unit 10 says of x what one with unit 1 says of the same x, ten times as large."""
    key, (return_, discount) = jax.random.key(0), f32(0.3, 0.9)
    one, ten = jnp.array([0.4]), jnp.array([0.04])
    np.testing.assert_allclose(Scalar(10.0).mean(ten), Scalar().mean(one), rtol=1e-6)
    found = Scalar(10.0).loss(ten, return_, discount, -ten, key)
    expected = Scalar().loss(one, return_, discount, -one, key)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    plain, scaled = MixtureOfGaussians(2), MixtureOfGaussians(2, unit=10.0)
    x = outputs(plain, 0)
    np.testing.assert_allclose(scaled.mean(x), 10 * plain.mean(x), rtol=1e-5)
    deviations = [
        head.metrics(x, return_, discount, x)["standard_deviation"] for head in (plain, scaled)
    ]
    np.testing.assert_allclose(deviations[1], 10 * deviations[0], rtol=0.05)  # but the least one


def test_losses_are_those_of_the_losses_package():
    key, (return_, discount) = jax.random.key(3), f32(0.3, 0.9)
    head = HEADS["categorical"]
    x, x_t = outputs(head, 1), outputs(head, 2)
    expected = losses.categorical_td_loss(
        jnp.linspace(-2.0, 3.0, 5), x, return_, discount, jax.nn.softmax(x_t)
    )
    np.testing.assert_allclose(head.loss(x, return_, discount, x_t, key), expected, rtol=1e-6)
    head = HEADS["mixture_of_gaussians"]
    x, x_t = outputs(head, 1), outputs(head, 2)
    scales, scales_t = (jax.nn.softplus(y[4:]) + 0.5 for y in (x, x_t))
    expected = losses.mixture_of_gaussians_td_loss(
        x[:2], x[2:4], scales, return_, discount, x_t[:2], x_t[2:4], scales_t, key, num_samples=4,
        min_scale=0.5,
    )  # fmt: skip
    np.testing.assert_allclose(head.loss(x, return_, discount, x_t, key), expected, rtol=1e-6)
    found = Scalar().loss(*f32([1.0], 0.3, 0.9, [2.0]), key)
    np.testing.assert_allclose(found, (0.5 * 1.1**2, 1.1), rtol=1e-5)


@pytest.mark.parametrize("name", HEADS)
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    size=st.sampled_from([1e-3, 1.0, 30.0, 1e3]),
    size_t=st.sampled_from([1e-3, 1.0, 30.0, 1e3]),
)
def test_priorities_are_finite_and_not_negative(name, seed, size, size_t):
    """A replay refuses others; a termination makes the target one point."""
    head = HEADS[name]
    x, x_t = size * outputs(head, seed), size_t * outputs(head, seed + 1)
    for discount in (0.0, 0.9):
        loss, priority = head.loss(x, *f32(0.1, discount), x_t, jax.random.key(seed))
        assert np.isfinite(loss)
        assert np.isfinite(priority)
        assert priority >= 0


@pytest.mark.parametrize("name", HEADS)
def test_a_prediction_that_equals_its_target_has_priority_0_whatever_its_entropy(name):
    head = HEADS[name]
    found = []
    for size in (1e-3, 1.0, 30.0):
        x = size * outputs(head, 4)
        found.append(head.loss(x, *f32(0.0, 1.0), x, jax.random.key(0)))
        np.testing.assert_allclose(found[-1].priority, 0.0, atol=1e-6)
    if name != "scalar":
        assert len({float(loss) for loss, _ in found}) == 3


def test_the_mixtures_best_prediction_of_a_certain_target_has_priority_0():
    """One component as narrow as can be, exactly at the return of a termination."""
    head = MixtureOfGaussians(1, num_samples=2, min_scale=0.2)
    certain, wide = jnp.array([0.0, 1.5, -60.0]), jnp.array([0.0, 7.0, 3.0])
    found = head.loss(certain, *f32(1.5, 0.0), wide, jax.random.key(0))
    np.testing.assert_allclose(found.priority, 0.0, atol=1e-6)
    # A density of 1 / (0.2 sqrt(2 pi)); log r is -1/2 (0.4 / 0.2)^2 at another return.
    np.testing.assert_allclose(found.loss, np.log(0.2 * np.sqrt(2 * np.pi)), rtol=1e-5)
    other = head.loss(certain, *f32(1.9, 0.0), wide, jax.random.key(0))
    np.testing.assert_allclose(other.priority, np.exp(-2) - 1 + 2, rtol=1e-4)


def test_metrics_by_hand():
    probs = jnp.array([0.7, 0.1, 0.2])
    # The target's masses are at -0.3, 0.1 and 0.5.
    target = f32(-0.3, 0.8, jnp.log(jnp.array([0.6, 0.3, 0.1])))
    found = Categorical(3, 0.0, 1.0).metrics(jnp.log(probs), *target)
    expected = {
        "mass_at_vmin": 0.7, "mass_at_vmax": 0.2, "clipped_below_vmin": 0.6, "clipped_above_vmax": 0
    }  # fmt: skip
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[name] for name in expected], [*expected.values()], rtol=1e-5)
    # Halves at 0 and 2, each with variance (1/2 + log 2)^2: the whole has 1 more.
    x = jnp.array([0.0, 0.0, 0.0, 2.0, 0.0, 0.0])
    found = HEADS["mixture_of_gaussians"].metrics(x, *target)["standard_deviation"]
    np.testing.assert_allclose(found, np.sqrt(1 + (0.5 + np.log(2)) ** 2), rtol=1e-5)
    assert Scalar().metrics(jnp.ones(1), *target) == {}
