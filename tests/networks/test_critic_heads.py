"""Heads of critics: means, losses and metrics by their definitions; what a priority needs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled_losses import f32
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.networks import categorical_head, mixture_of_gaussians_head, scalar_head

HEADS = {
    "categorical": categorical_head(num_atoms=5, vmin=-2.0, vmax=3.0),
    "mixture_of_gaussians": mixture_of_gaussians_head(
        num_components=2, num_samples=4, min_scale=0.5
    ),
    "scalar": scalar_head(),
}


def outputs(head, seed):
    size = head.num_outputs
    return jnp.asarray(np.random.default_rng(seed).normal(size=size), jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def mean_of(head, x):
    """The mean and its gradient."""
    return jax.value_and_grad(head.mean)(x)


@functools.partial(jax.jit, static_argnums=0)
def loss_of(head, *arguments):
    return head.loss(*arguments)


@functools.partial(jax.jit, static_argnums=0)
def metrics_of(head, *arguments):
    return head.metrics(*arguments)


@pytest.mark.parametrize("name", HEADS)
def test_mean_and_its_gradient_are_the_definition(name):
    head = HEADS[name]
    x = outputs(head, 0)
    config = {"critic": name, "vmin": -2.0, "vmax": 3.0, "num_atoms": 5}
    config |= {"mixture_min_scale": 0.5, "return_unit": 1.0}
    _, _, mean, gradient = oracles.d4pg_critic(x, 0.0, 1.0, x, config, [0.0])
    found, slope = mean_of(head, x)
    np.testing.assert_allclose(found, mean, rtol=1e-5)
    np.testing.assert_allclose(slope, gradient, rtol=1e-4, atol=1e-6)


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
        loss, priority = loss_of(head, x, *f32(0.1, discount), x_t, jax.random.key(seed))
        assert np.isfinite(loss)
        assert np.isfinite(priority)
        assert priority >= 0


@pytest.mark.parametrize("name", HEADS)
def test_a_prediction_that_equals_its_target_has_priority_0_whatever_its_entropy(name):
    head = HEADS[name]
    found = []
    for size in (1e-3, 1.0, 30.0):
        x = size * outputs(head, 4)
        found.append(loss_of(head, x, *f32(0.0, 1.0), x, jax.random.key(0)))
        np.testing.assert_allclose(found[-1].priority, 0.0, atol=1e-6)
    if name != "scalar":
        assert len({float(loss) for loss, _ in found}) == 3


def test_the_mixtures_best_prediction_of_a_certain_target_has_priority_0():
    """One component as narrow as can be, exactly at the return of a termination."""
    head = mixture_of_gaussians_head(1, num_samples=2, min_scale=0.2)
    certain, wide = np.float32([0.0, 1.5, -60.0]), np.float32([0.0, 7.0, 3.0])
    found = loss_of(head, certain, *f32(1.5, 0.0), wide, jax.random.key(0))
    np.testing.assert_allclose(found.priority, 0.0, atol=1e-6)
    # A density of 1 / (0.2 sqrt(2 pi)); log r is -1/2 (0.4 / 0.2)^2 at another return.
    np.testing.assert_allclose(found.loss, np.log(0.2 * np.sqrt(2 * np.pi)), rtol=1e-5)
    other = loss_of(head, certain, *f32(1.9, 0.0), wide, jax.random.key(0))
    np.testing.assert_allclose(other.priority, np.exp(-2) - 1 + 2, rtol=1e-4)


def test_metrics_by_hand():
    logits = np.log(np.float32([0.7, 0.1, 0.2]))
    # The target's masses are at -0.3, 0.1 and 0.5.
    target = f32(-0.3, 0.8, np.log([0.6, 0.3, 0.1]))
    found = metrics_of(categorical_head(3, 0.0, 1.0), logits, *target)
    expected = {
        "mass_at_vmin": 0.7, "mass_at_vmax": 0.2, "clipped_below_vmin": 0.6, "clipped_above_vmax": 0
    }  # fmt: skip
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[name] for name in expected], [*expected.values()], rtol=1e-5)
    # Halves at 0 and 2, each with variance (1/2 + log 2)^2: the whole has 1 more.
    x = np.float32([0.0, 0.0, 0.0, 2.0, 0.0, 0.0])
    found = metrics_of(HEADS["mixture_of_gaussians"], x, *target)["standard_deviation"]
    np.testing.assert_allclose(found, np.sqrt(1 + (0.5 + np.log(2)) ** 2), rtol=1e-5)
    assert scalar_head().metrics(jnp.ones(1), *target) == {}
