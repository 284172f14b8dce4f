"""Cross-entropy and total variation, with signed targets; divergence; projection."""

import functools

import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled_losses import by_hand
from hypothesis import given, settings
from hypothesis import strategies as st

import retrax.losses
from retrax.losses.distributional import affine_projections

SIGNED = np.array([-0.5, 1.2, 0.3], np.float32)


def test_cross_entropy_by_hand_with_a_signed_target():
    logits = np.log(np.array([0.2, 0.5, 0.3], np.float32)) + 7.0  # a constant does not matter
    expected = -(-0.5 * np.log(0.2) + 1.2 * np.log(0.5) + 0.3 * np.log(0.3))
    by_hand(losses.categorical_cross_entropy, expected, 1e-5, target=SIGNED, logits=logits)


@pytest.mark.parametrize(
    ("loss", "target"),
    [("categorical_cross_entropy", SIGNED), ("categorical_kl_divergence", [0.5, 0.5, 0.0])],
)
def test_gradients_are_prediction_minus_target(loss, target):
    target, logits = np.float32(target), jnp.array([0.1, -2.0, 3.0])
    gradient = jax.jit(jax.grad(getattr(losses, loss), argnums=1))(target, logits)
    np.testing.assert_allclose(gradient, jax.nn.softmax(logits) - target, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.sampled_from([0.1, 3.0, 30.0]))
def test_no_kl_divergence_of_equals_is_below_0(seed, size):
    logits = jnp.asarray(size * np.random.default_rng(seed).normal(size=101), jnp.float32)
    assert 0 <= losses.categorical_kl_divergence(jax.nn.softmax(logits), logits) <= 1e-6


def test_total_variation_by_hand():
    probs = [0.2, 0.5, 0.3]
    by_hand(losses.total_variation, 0.5 * (0.7 + 0.7 + 0.0), target=SIGNED, probs=probs)
    by_hand(losses.total_variation, 0.0, target=probs, probs=probs)
    by_hand(losses.total_variation, 1.0, target=[1, 0, 0], probs=[0, 1, 0])


def test_projection_by_hand():
    """Masses at 0.5, 2 and 9 on the atoms (-1, 0, 2): a quarter of the way, on an atom, beyond."""
    given = {"atoms": [-1, 0, 2], "values": [0.5, 2, 9], "probs": [0.4, 0.5, 0.1]}
    by_hand(retrax.losses.categorical_projection, [0.0, 0.3, 0.7], 1e-6, **given)
    counts = losses.categorical_projection(jnp.array([-1.0, 0.0, 2.0]), jnp.ones(1), np.array([4]))
    np.testing.assert_array_equal(counts, [0.0, 2.0, 2.0])


def test_a_return_at_an_end_of_the_support_is_not_clipped():
    atoms, probs = jnp.array([-1.0, 0.0, 1.0]), jnp.array([0.5, 0.3, 0.2])
    for return_ in (-1.0, 1.0):
        np.testing.assert_array_equal(losses.clipped_mass(atoms, return_, 0.0, probs), (0, 0))
    np.testing.assert_array_equal(losses.clipped_mass(atoms, 0.0, 1.0, probs), (0, 0))
    np.testing.assert_allclose(losses.clipped_mass(atoms, 0.5, 0.9, probs), (0, 0.2), rtol=1e-6)


@pytest.mark.parametrize("support", [(-2.0, 2.0, 201), (-10.0, 10.0, 51), (0.0, 500.0, 2)])
def test_atoms_of_equal_distances_are_found_without_a_search(support):
    """A constant support, and one that is an argument of the compiled function, whose distances
    are unknown: on atoms, between them and outside."""
    atoms = np.linspace(*support, dtype=np.float32)
    rng = np.random.default_rng(0)
    width = support[1] - support[0]
    between = rng.uniform(support[0] - width / 4, support[1] + width / 4, size=200)
    values = np.concatenate([atoms, between, np.nextafter(atoms, -np.inf)]).astype(np.float32)
    probs = rng.dirichlet(np.ones(len(values))).astype(np.float32)
    constant = jax.jit(functools.partial(retrax.losses.categorical_projection, atoms))
    found, searched = (constant(values, probs), losses.categorical_projection(atoms, values, probs))
    assert "searchsorted" not in constant.lower(values, probs).as_text()
    np.testing.assert_allclose(found, searched, atol=1e-5)
    np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-5)


SUPPORTS = {
    "odd": np.linspace(-2, 2, 201, dtype=np.float32),
    "even": np.linspace(-10, 30, 6, dtype=np.float32),
    "two": np.array([0, 1], np.float32),
    "unequal": np.array([-1, 0, 3, 4], np.float32),
}


@pytest.mark.parametrize("support", SUPPORTS)
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    shift=st.sampled_from([0.0, 0.3, -7.0, 1e6, -1e6]),
    scale=st.sampled_from([0.0, 1e-30, 1e-6, 0.3, 0.99, 1.0, 2.5]),
)
def test_affine_projections_are_the_papers_sum(support, seed, shift, scale):
    atoms, rng = SUPPORTS[support], np.random.default_rng(seed)
    masses = rng.normal(size=(2, len(atoms))).astype(np.float32)
    masses /= np.abs(masses).sum(1, keepdims=True)
    places = np.float32([[shift, 0.0], [scale, 1.0]]) + rng.uniform(0, [[0.1], [0.0]], (2, 2))
    arguments = masses, np.array([1, 0]), *places.astype(np.float32)
    found = affine(support)(*arguments)
    for row, which, shift_, scale_ in zip(found, *arguments[1:], strict=True):
        wanted = oracles.projected(np.float64(atoms), float(shift_), float(scale_), masses[which])
        np.testing.assert_allclose(row, wanted, atol=1e-5)
        np.testing.assert_allclose(row.sum(), masses[which].sum(), atol=1e-6)


@functools.cache
def affine(support):
    """Compiled with the support as a constant."""
    return jax.jit(functools.partial(affine_projections, SUPPORTS[support]))


@pytest.mark.parametrize(("support", "scatters"), [("odd", False), ("unequal", True)])
def test_affine_projections_of_equal_distances_scatter_nothing(support, scatters):
    masses = np.ones((1, len(SUPPORTS[support])), np.float32)
    ones = np.ones(3, np.float32)
    text = affine(support).lower(masses, np.zeros(3, int), ones, ones).as_text()
    assert ("scatter" in text) == scatters
