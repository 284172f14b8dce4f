"""Convolutions with a gradient of our own, against NumPy loops and Haiku's."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.networks.convolution import Convolution, convolve, convolve_blocks

SHAPES = [
    # height, width, channels, kernel, stride, outputs
    (7, 8, 2, 3, 2, 3),  # the kernel is no multiple of the stride
    (9, 9, 3, 4, 2, 2),  # a row and a column are reached by no kernel
    (11, 14, 1, 4, 4, 2),  # kernels do not overlap
    (8, 11, 2, 2, 3, 2),  # nor do they touch
    (5, 6, 2, 3, 1, 4),
]


def arrays(shape, seed=0, number=2):
    """Inputs, weights, and a gradient of the outputs."""
    height, width, channels, kernel, stride, outputs = shape
    rng = np.random.default_rng(seed)
    of = [(height - kernel) // stride + 1, (width - kernel) // stride + 1, outputs]
    sizes = [[number, height, width, channels], [kernel, kernel, channels, outputs], [number, *of]]
    return [rng.normal(size=size).astype(np.float32) for size in sizes]


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_the_slow_convolution(shape):
    *_, stride, outputs = shape
    inputs, weights, gradient = arrays(shape)
    biases = np.zeros(outputs)
    slow = [oracles.valid_convolution(image, weights, biases, stride) for image in inputs]
    made, backward = jax.vjp(lambda x, w: convolve(x, w, stride), inputs, weights)
    np.testing.assert_allclose(made, slow, rtol=1e-5, atol=1e-5)
    expected = oracles.convolution_gradients(inputs, weights, gradient, stride)
    for actual, right in zip(backward(gradient), expected, strict=True):
        np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(convolve_blocks(inputs, weights, stride), made, rtol=1e-4, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(0, 7), st.integers(0, 7), st.integers(0, 9)
)
def test_input_gradients_are_those_of_xla(kernel, stride, more_rows, more_columns, seed):
    shape = (kernel + more_rows, kernel + more_columns, 2, kernel, stride, 3)
    inputs, weights, gradient = arrays(shape, seed)

    def plain(x):
        numbers = ("NHWC", "HWIO", "NHWC")
        sides = (stride, stride)
        return jax.lax.conv_general_dilated(x, weights, sides, "VALID", dimension_numbers=numbers)

    expected = jax.vjp(plain, inputs)[1](gradient)[0]
    ours = jax.vjp(lambda x: convolve(x, weights, stride), inputs)[1](gradient)[0]
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_it_is_haikus_convolution_with_the_same_parameters(stride):
    images = arrays((9, 8, 3, 4, stride, 5))[0]
    ours = hk.without_apply_rng(hk.transform(lambda x: Convolution(5, 4, stride)(x)))
    theirs = hk.without_apply_rng(
        hk.transform(lambda x: hk.Conv2D(5, 4, stride, padding="VALID")(x))
    )
    params, expected = (each.init(jax.random.key(0), images) for each in (ours, theirs))
    assert jax.tree.structure(params) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, params, expected)
    params["conv2_d"]["b"] = jnp.arange(5.0)
    np.testing.assert_array_equal(ours.apply(params, images), theirs.apply(params, images))

    def loss(params, images, network):
        return jnp.sum(network.apply(params, images) ** 2)

    gradients, right = (
        jax.jit(jax.grad(loss, (0, 1)), static_argnums=2)(params, images, network)
        for network in (ours, theirs)
    )
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4), gradients, right
    )


def test_batches_of_batches():
    """As actors and learners map agents over environments and sequences."""
    inputs, weights, gradient = arrays((9, 9, 3, 4, 2, 2), number=6)
    alone = jax.vjp(lambda x: convolve(x, weights, 2), inputs)[1](gradient)[0]

    def one(x, g):
        return jax.vjp(lambda x: convolve(x, weights, 2), x)[1](g)[0]

    stacked = jax.vmap(one)(
        inputs.reshape(3, 2, 9, 9, 3), gradient.reshape(3, 2, *gradient.shape[1:])
    )
    np.testing.assert_allclose(stacked.reshape(inputs.shape), alone, rtol=1e-5, atol=1e-5)
