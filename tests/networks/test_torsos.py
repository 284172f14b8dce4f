"""Torsos against slow NumPy definitions, and the observations that they refuse."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from dm_env import specs

from retrax.networks import ImageTorso, choose_convolutions, choose_torso, crelu
from retrax.networks.torsos import REACTOR_CONVOLUTIONS


def transformed(make_module, example, seed=0):
    """A module's apply, and random parameters, biases too (Haiku's are zero)."""
    network = hk.without_apply_rng(hk.transform(lambda x: make_module()(x)))
    shapes = jax.eval_shape(network.init, jax.random.key(seed), example)
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)
    return jax.jit(network.apply), params


def random_images(seed, shape):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def test_image_torso_is_the_slow_convolution():
    images, shapes = random_images(0, (2, 7, 8, 2)), ((2, 3, 2), (3, 2, 1))
    apply, params = transformed(lambda: ImageTorso(shapes), images)
    weights = [params["image_torso/~/conv2_d"], params["image_torso/~/conv2_d_1"]]
    layers = [
        (layer["w"], layer["b"], stride)
        for layer, (_, _, stride) in zip(weights, shapes, strict=True)
    ]
    expected = [oracles.image_features(image, layers) for image in images]
    actual = apply(params, images)
    assert actual.shape == (2, 2 * 2 * 2 * 3)  # 7x8 -> 3x3 -> 2x2, CReLU doubles 3 channels
    assert actual.dtype == jnp.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [(3, 2), ()])
@pytest.mark.parametrize("activation", [crelu, jax.nn.relu])
def test_vector_torso_flattens_then_has_linear_layers_with_activations(sizes, activation):
    vectors = np.random.default_rng(1).normal(size=(3, 2, 2)).astype(np.float32)
    seen = specs.Array((2, 2), np.float32)
    apply, params = transformed(choose_torso(seen, None, sizes, activation), vectors)
    assert [layer["w"].shape[1] for layer in params.values()] == [*sizes]
    features = vectors.reshape(3, 4)
    for layer in params.values():
        features = oracles.concatenated_relu(features @ layer["w"] + layer["b"])
        if activation is not crelu:  # the first half
            features = features[:, : layer["w"].shape[1]]
    np.testing.assert_allclose(apply(params, vectors), features, rtol=1e-5, atol=1e-5)


ALLOWED = "allowed are uint8 images .* float arrays"
TOO_SMALL = r"a side of 35 pixels is too small for convolutions of .* \(\(16, 8, 4\), .*\)"


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((84, 84), np.uint8, rf"shape \(84, 84\) and dtype uint8: {ALLOWED}"),
        ((3,), np.int32, rf"shape \(3,\) and dtype int32: {ALLOWED}"),
        ((84, 84, 1), np.int64, rf"shape \(84, 84, 1\) and dtype int64: {ALLOWED}"),
        ((2,), np.bool_, rf"shape \(2,\) and dtype bool: {ALLOWED}"),
        ((35, 84, 1), np.uint8, TOO_SMALL),
        ((84, 35, 1), np.uint8, TOO_SMALL),
    ],
)
def test_other_observations_are_refused(shape, dtype, message):
    with pytest.raises(ValueError, match=message):
        choose_torso(specs.Array(shape, dtype))


@pytest.mark.parametrize("long", [1, 3, 20, 40, 500])
def test_convolutions_for_every_size_leave_features(long):
    for short in range(1, 260):
        for shape in ((short, max(short, long), 4), (max(short, long), short, 1)):
            image = specs.Array(shape, np.uint8)
            chosen = choose_convolutions(image)
            assert choose_convolutions(image, chosen) == chosen


@pytest.mark.parametrize(
    ("shape", "convolutions", "num_features"),
    [
        ((10, 10, 4), None, 8 * 8 * 16),
        ((84, 84, 1), None, 7 * 7 * 64),
        ((210, 160, 3), None, 9 * 6 * 64),
        ((36, 36, 1), REACTOR_CONVOLUTIONS, 32),  # the smallest: 36 -> 8 -> 3 -> 1
    ],
)
def test_a_torso_without_convolutions_of_its_own_chooses_them(shape, convolutions, num_features):
    images = random_images(0, (2, *shape))
    torso = choose_torso(specs.Array(shape, np.uint8), convolutions, activation=jax.nn.relu)
    apply, params = transformed(torso, images)
    assert jax.eval_shape(apply, params, images).shape == (2, num_features)


SHAPES = r"observations \[T, ...\] to float features \[T, D\], got .* of shape \(2, 4\)"
STATELESS = r"A network must have no state .* and draw no random numbers .*neither\."


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (lambda x: x.reshape(-1, 2, 2), SHAPES),
        (lambda x: x[0], SHAPES),
        (lambda x: x[:1], SHAPES),
        (lambda x: x.astype(jnp.int32), SHAPES),
        (lambda x: (x, x), SHAPES),
        (lambda x: hk.BatchNorm(True, True, 0.9)(x, is_training=True), STATELESS),
        (lambda x: hk.dropout(hk.next_rng_key(), 0.5, x), STATELESS),
    ],
)
def test_torsos_of_ones_own_must_give_float_features_without_a_state(features, message):
    with pytest.raises(ValueError, match=message):
        choose_torso(specs.Array((4,), np.float32), own=lambda: features)
