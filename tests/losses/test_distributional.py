"""Cross-entropy and total variation, with signed targets; divergence; projection."""

import functools

import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retrax.losses
from retrax.losses.distributional import affine_projections

SIGNED = np.array([-0.5, 1.2, 0.3], np.float32)
OF_CROSS_ENTROPY = jax.jit(jax.grad(losses.categorical_cross_entropy, argnums=1))


def test_cross_entropy_by_hand_with_a_signed_target():
    logits = np.log(np.array([0.2, 0.5, 0.3], np.float32)) + 7.0  # a constant does not matter
    expected = -(-0.5 * np.log(0.2) + 1.2 * np.log(0.5) + 0.3 * np.log(0.3))
    loss = losses.categorical_cross_entropy(target=SIGNED, logits=jnp.asarray(logits))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_cross_entropys_gradient_is_prediction_minus_target():
    logits = jnp.array([0.1, -2.0, 3.0])
    gradient = OF_CROSS_ENTROPY(SIGNED, logits)
    np.testing.assert_allclose(gradient, jax.nn.softmax(logits) - SIGNED, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    atoms=st.sampled_from([1, 7]),
    concentration=st.sampled_from([0.01, 1.0, 100.0]),
    size=st.sampled_from([0.1, 3.0, 100.0]),
)
def test_kl_divergence_is_the_definition(seed, atoms, concentration, size):
    """Some targets have zeros, some predictions are nearly certain."""
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.full(atoms, concentration)).astype(np.float32)
    logits = np.clip(size * rng.normal(size=atoms), -300, 300).astype(np.float32)
    found = losses.categorical_kl_divergence(jnp.asarray(target), jnp.asarray(logits))
    probs = np.exp(np.float64(logits) - logits.max())
    expected = oracles.kl_divergence(np.float64(target), probs / probs.sum())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert found >= 0


def test_kl_divergence_is_the_cross_entropy_without_the_targets_entropy():
    target, logits = jnp.array([0.5, 0.5, 0.0]), jnp.log(jnp.array([0.2, 0.5, 0.3]))
    found = losses.categorical_kl_divergence(target, logits)
    np.testing.assert_allclose(found, 0.5 * np.log(0.5 / 0.2), rtol=1e-6)
    cross_entropy = losses.categorical_cross_entropy(target, logits)
    np.testing.assert_allclose(found, cross_entropy - np.log(2), rtol=1e-5)
    gradient = jax.jit(jax.grad(losses.categorical_kl_divergence, argnums=1))(target, logits)
    np.testing.assert_allclose(gradient, OF_CROSS_ENTROPY(target, logits), rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.sampled_from([0.1, 3.0, 30.0]))
def test_no_kl_divergence_of_equals_is_below_0(seed, size):
    logits = jnp.asarray(size * np.random.default_rng(seed).normal(size=101), jnp.float32)
    found = losses.categorical_kl_divergence(jax.nn.softmax(logits), logits)
    assert 0 <= found <= 1e-6


def test_total_variation_by_hand():
    probs = jnp.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(losses.total_variation(SIGNED, probs), 0.5 * (0.7 + 0.7 + 0.0))
    np.testing.assert_allclose(losses.total_variation(probs, probs), 0.0)
    np.testing.assert_allclose(losses.total_variation(jnp.eye(3)[0], jnp.eye(3)[1]), 1.0)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), discount=st.sampled_from([0.0, 0.5, 1.0]))
@pytest.mark.parametrize("atoms", [2, 7])
def test_bellman_target_is_algorithm_1(atoms, seed, discount):
    """Unequal spaces between atoms too; the paper's are equal."""
    rng = np.random.default_rng(seed)
    support = np.cumsum(rng.uniform(0.5, 2.0, size=atoms)) - 3.0
    probs, return_ = rng.dirichlet(np.ones(atoms)), 2 * rng.normal()
    found = losses.categorical_bellman_target(
        *(jnp.asarray(x, jnp.float32) for x in (support, return_, discount, probs))
    )
    expected = oracles.projected(support, return_, discount, probs)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-5)


def test_projection_by_hand():
    """Masses at 0.5, 2 and 9 on the atoms (-1, 0, 2): a quarter of the way, on an atom, beyond."""
    found = retrax.losses.categorical_projection(
        jnp.array([-1.0, 0.0, 2.0]), jnp.array([0.5, 2.0, 9.0]), jnp.array([0.4, 0.5, 0.1])
    )
    np.testing.assert_allclose(found, [0.0, 0.3, 0.7], rtol=1e-6)


def test_projection_onto_other_atoms_keeps_the_mean_within_the_support():
    atoms = jnp.linspace(-2.0, 2.0, 5)
    values, probs = jnp.array([-1.7, 0.3, 1.1]), jnp.array([0.2, 0.5, 0.3])
    found = jax.jit(functools.partial(retrax.losses.categorical_projection, atoms))(values, probs)
    np.testing.assert_allclose(found @ atoms, probs @ values, rtol=1e-5)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    return_=st.floats(-3, 3, width=32),
    discount=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
)
def test_clipped_mass_is_what_the_projection_moves(seed, return_, discount):
    rng = np.random.default_rng(seed)
    atoms = np.sort(rng.uniform(-2, 2, 5)).astype(np.float32)
    probs = rng.dirichlet(np.ones(5)).astype(np.float32)
    below, above = losses.clipped_mass(*map(jnp.asarray, (atoms, return_, discount, probs)))
    values = np.float32(return_) + np.float32(discount) * atoms
    expected = [0.0, 0.0]
    for value, prob in zip(values, probs, strict=True):
        expected[0] += prob * (value < atoms[0])
        expected[1] += prob * (value > atoms[-1])
    np.testing.assert_allclose((below, above), expected, rtol=1e-5, atol=1e-7)


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


def test_affine_projections_by_hand():
    """Masses 0.5, 0.25, 0.25 at 0.5, 1.0, 1.5; and, doubled, at -1, 1, 3 on atoms from 0 to 2."""
    atoms, masses = np.float32([0, 1, 2]), np.float32([[0.5, 0.25, 0.25]])
    found = jax.jit(functools.partial(affine_projections, atoms))(
        masses, np.array([0, 0]), np.float32([0.5, -1.0]), np.float32([0.5, 2.0])
    )
    np.testing.assert_allclose(found, [[0.25, 0.625, 0.125], [0.5, 0.25, 0.25]], atol=1e-6)


@pytest.mark.parametrize(("support", "scatters"), [("odd", False), ("unequal", True)])
def test_affine_projections_of_equal_distances_scatter_nothing(support, scatters):
    masses = np.ones((1, len(SUPPORTS[support])), np.float32)
    ones = np.ones(3, np.float32)
    text = affine(support).lower(masses, np.zeros(3, int), ones, ones).as_text()
    assert ("scatter" in text) == scatters
