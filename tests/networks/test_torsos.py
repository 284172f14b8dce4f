"""Torsos against slow NumPy definitions, and the observations that they refuse."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from dm_env import specs

from retrax.networks import ImageTorso, VectorTorso, crelu, make_torso
from retrax.networks.torsos import check_observation, check_torso, choose_convolutions

CONVOLUTIONS = ((2, 3, 2), (3, 2, 1))


def transformed(make_module, example, seed=0):
    """A module's apply, and random parameters, biases too (Haiku's are zero)."""
    network = hk.without_apply_rng(hk.transform(lambda x: make_module()(x)))
    shapes = jax.eval_shape(network.init, jax.random.key(seed), example)
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)
    return jax.jit(network.apply), params


def random_images(seed, shape):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def test_crelu_by_hand():
    actual = crelu(jnp.array([[1.0, -2.0, 0.0], [-3.0, 4.0, 5.0]]))
    expected = [[1, 0, 0, 0, 2, 0], [0, 4, 5, 3, 0, 0]]
    np.testing.assert_array_equal(actual, expected)


def test_image_torso_is_the_slow_convolution():
    images = random_images(0, (2, 7, 8, 2))
    apply, params = transformed(lambda: ImageTorso(CONVOLUTIONS), images)
    weights = [params["image_torso/~/conv2_d"], params["image_torso/~/conv2_d_1"]]
    layers = [
        (layer["w"], layer["b"], stride)
        for layer, (_, _, stride) in zip(weights, CONVOLUTIONS, strict=True)
    ]
    expected = [oracles.image_features(image, layers) for image in images]
    actual = apply(params, images)
    assert actual.shape == (2, 2 * 2 * 2 * 3)  # 7x8 -> 3x3 -> 2x2, CReLU doubles 3 channels
    assert actual.dtype == jnp.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_bytes_are_scaled_to_one():
    apply, params = transformed(lambda: ImageTorso(((1, 1, 1),)), random_images(0, (1, 1, 1, 1)))
    params = {"image_torso/~/conv2_d": {"w": jnp.ones((1, 1, 1, 1)), "b": jnp.zeros((1,))}}
    pixels = np.array([0, 51, 128, 255], np.uint8).reshape(4, 1, 1, 1)
    features = apply(params, pixels)
    np.testing.assert_allclose(features[:, 0], [0.0, 0.2, 128 / 255, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(features[:, 1], np.zeros(4))


def test_image_torso_wants_time_first():
    with pytest.raises(AssertionError, match=r"shape \(84, 84, 1\)\) but expected 4"):
        transformed(ImageTorso, random_images(0, (84, 84, 1)))


def test_vector_torso_is_linear_layers_with_crelu():
    vectors = np.random.default_rng(1).normal(size=(3, 2, 2)).astype(np.float32)
    apply, params = transformed(lambda: VectorTorso((3, 2)), vectors)
    features = vectors.reshape(3, 4)
    for name in ("vector_torso/~/linear", "vector_torso/~/linear_1"):
        features = oracles.concatenated_relu(features @ params[name]["w"] + params[name]["b"])
    np.testing.assert_allclose(apply(params, vectors), features, rtol=1e-5, atol=1e-5)


def test_vector_torso_without_layers_flattens():
    vectors = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    apply, params = transformed(lambda: VectorTorso(()), vectors)
    assert params == {}
    np.testing.assert_array_equal(apply(params, vectors), vectors.reshape(3, 4))


@pytest.mark.parametrize(
    ("shape", "dtype", "torso"),
    [
        ((84, 84, 1), np.uint8, ImageTorso),
        ((84, 84, 1), np.float32, VectorTorso),
        ((4,), np.float32, VectorTorso),
    ],
)
def test_the_torso_fits_the_observation(shape, dtype, torso):
    kinds = []

    def build(x):
        kinds.append(type(make_torso(specs.Array(shape, dtype))))
        return x

    hk.transform(build).init(jax.random.key(0), jnp.zeros(()))
    assert kinds == [torso]
    check_observation(specs.Array(shape, dtype))


@pytest.mark.parametrize(
    ("shape", "dtype", "given"),
    [
        ((84, 84), np.uint8, r"shape \(84, 84\) and dtype uint8"),
        ((3,), np.int32, r"shape \(3,\) and dtype int32"),
        ((84, 84, 1), np.int64, r"shape \(84, 84, 1\) and dtype int64"),
        ((2,), np.bool_, r"shape \(2,\) and dtype bool"),
    ],
)
def test_refuses_other_observations(shape, dtype, given):
    with pytest.raises(ValueError, match=f"{given}: allowed are uint8 images .* float arrays"):
        check_observation(specs.Array(shape, dtype))


@pytest.mark.parametrize("shape", [(35, 84, 1), (84, 35, 1)])
def test_refuses_images_that_the_convolutions_use_up(shape):
    message = r"a side of 35 pixels is too small for convolutions of .* \(\(16, 8, 4\), .*\)"
    with pytest.raises(ValueError, match=message):
        check_observation(specs.Array(shape, np.uint8))


@pytest.mark.parametrize("long", [1, 3, 20, 40, 500])
def test_convolutions_for_every_size_leave_features(long):
    for short in range(1, 260):
        for shape in ((short, max(short, long), 4), (max(short, long), short, 1)):
            image = specs.Array(shape, np.uint8)
            check_observation(image, choose_convolutions(shape))
            check_observation(image, None)


@pytest.mark.parametrize(
    ("shape", "num_features"),
    [((10, 10, 4), 8 * 8 * 16), ((84, 84, 1), 7 * 7 * 64), ((210, 160, 3), 9 * 6 * 64)],
)
def test_a_torso_without_convolutions_of_its_own_chooses_them(shape, num_features):
    image = specs.Array(shape, np.uint8)
    images = random_images(0, (2, *shape))
    apply, params = transformed(
        lambda: make_torso(image, convolutions=None, activation=jax.nn.relu), images
    )
    assert jax.eval_shape(apply, params, images).shape == (2, num_features)


def test_takes_the_smallest_image_that_leaves_one_feature():
    check_observation(specs.Array((36, 36, 1), np.uint8))  # 36 -> 8 -> 3 -> 1
    images = random_images(0, (1, 36, 36, 1))
    apply, params = transformed(ImageTorso, images)
    assert jax.eval_shape(apply, params, images).shape == (1, 64)


@pytest.mark.parametrize("observation", [specs.Array((7, 8, 2), np.uint8), specs.Array((4,), "f4")])
def test_another_activation_takes_the_place_of_crelu(observation):
    """ReLU keeps the first half of what CReLU makes of the only layer."""
    x = random_images(0, (2, *observation.shape)).astype(observation.dtype)
    sizes = {"convolutions": ((2, 3, 2),), "vector_sizes": (2,)}
    apply, params = transformed(lambda: make_torso(observation, **sizes), x)
    relu, _ = transformed(lambda: make_torso(observation, **sizes, activation=jax.nn.relu), x)
    both = np.asarray(apply(params, x)).reshape(-1, 4)
    np.testing.assert_allclose(np.asarray(relu(params, x)).reshape(-1, 2), both[:, :2])


@pytest.mark.parametrize(
    "features",
    [
        lambda x: x.reshape(-1, 2, 2).astype(jnp.float32),
        lambda x: x[0].astype(jnp.float32),
        lambda x: x[:1].astype(jnp.float32),
        lambda x: x,
        lambda x: (x.astype(jnp.float32), x),
    ],
    ids=["another rank", "no time", "one of two", "integers", "a tuple"],
)
def test_torsos_of_ones_own_must_give_float_features(features):
    spec = specs.Array((4,), np.int32)
    message = r"observations \[T, ...\] to float features \[T, D\], got .* of shape \(2, 4\)"
    with pytest.raises(ValueError, match=message):
        check_torso(spec, own=lambda: features)


def test_torsos_of_ones_own_may_take_any_observation():
    spec = specs.Array((4,), np.int32)
    with pytest.raises(ValueError, match="dtype int32: allowed are uint8 images"):
        check_torso(spec)

    def own():
        return hk.Sequential([lambda x: jax.nn.one_hot(x, 3), hk.Flatten(), hk.Linear(5)])

    check_torso(spec, own=own)
    apply, params = transformed(lambda: make_torso(spec, own=own), np.zeros((1, 4), np.int32))
    assert jax.eval_shape(apply, params, np.zeros((6, 4), np.int32)).shape == (6, 5)
