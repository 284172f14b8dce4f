"""Convolutions with a gradient of our own, against NumPy loops and Haiku's."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from dm_env import specs

from retrax.networks.base import make_feed_forward_network, within_loops
from retrax.networks.torsos import Convolution, convolve, convolve_blocks, convolve_patches

SHAPES = [
    # height, width, channels, kernel, stride, outputs
    (7, 8, 2, 3, 2, 3),  # the kernel is no multiple of the stride
    (9, 9, 3, 4, 2, 2),  # a row and a column are reached by no kernel
    (11, 14, 1, 4, 4, 2),  # kernels do not overlap
    (8, 11, 2, 2, 3, 2),  # nor do they touch
    (5, 6, 2, 3, 1, 4),
    (5, 5, 2, 5, 2, 3),  # one kernel
    (4, 8, 2, 3, 5, 3),  # one and two, with a gap
    (4, 5, 2, 1, 1, 3),  # of one pixel
    (4, 5, 2, 1, 3, 3),
]


def arrays(shape, seed=0, number=2):
    """Inputs, weights, and a gradient of the outputs."""
    height, width, channels, kernel, stride, outputs = shape
    rng = np.random.default_rng(seed)
    of = [(height - kernel) // stride + 1, (width - kernel) // stride + 1, outputs]
    sizes = [[number, height, width, channels], [kernel, kernel, channels, outputs], [number, *of]]
    return [rng.normal(size=size).astype(np.float32) for size in sizes]


@functools.partial(jax.jit, static_argnums=3)
def both_ways_and_gradients(inputs, weights, gradient, stride):
    outputs, backward = jax.vjp(lambda x, w: convolve(x, w, stride), inputs, weights)
    patches, of_patches = jax.vjp(lambda x, w: convolve_patches(x, w, stride), inputs, weights)
    blocks = convolve_blocks(inputs, weights, stride)
    return outputs, blocks, patches, *backward(gradient), *of_patches(gradient)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_the_slow_convolution(shape):
    *_, stride, outputs = shape
    inputs, weights, gradient = arrays(shape)
    slow = [oracles.valid_convolution(x, weights, np.zeros(outputs), stride) for x in inputs]
    gradients = oracles.convolution_gradients(inputs, weights, gradient, stride)
    found = both_ways_and_gradients(inputs, weights, gradient, stride)
    for actual, expected in zip(found, (slow, slow, slow, *gradients, *gradients), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_it_is_haikus_convolution_with_the_same_parameters(stride):
    images = arrays((9, 8, 3, 4, stride, 5))[0]
    ours = hk.without_apply_rng(hk.transform(lambda x: Convolution(5, 4, stride)(x)))
    theirs = hk.without_apply_rng(
        hk.transform(lambda x: hk.Conv2D(5, 4, stride, padding="VALID")(x))
    )
    params, expected = (jax.jit(each.init)(jax.random.key(0), images) for each in (ours, theirs))
    assert jax.tree.structure(params) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, params, expected)
    params["conv2_d"]["b"] = jnp.arange(5.0)
    np.testing.assert_array_equal(*(x.apply(params, images) for x in (ours, theirs)))


def test_batches_of_batches():
    """As actors and learners map agents over environments and sequences."""
    inputs, weights, gradient = arrays((9, 9, 3, 4, 2, 2), number=6)

    def of_inputs(x, g):
        return jax.vjp(lambda x: convolve(x, weights, 2), x)[1](g)[0]

    alone = jax.jit(of_inputs)(inputs, gradient)
    stacked = jax.jit(jax.vmap(of_inputs))(
        inputs.reshape(3, 2, 9, 9, 3), gradient.reshape(3, 2, *gradient.shape[1:])
    )
    np.testing.assert_allclose(stacked.reshape(inputs.shape), alone, rtol=1e-5, atol=1e-5)


def test_within_the_block_and_only_there_it_is_a_product():
    images = arrays((9, 8, 3, 4, 2, 5))[0]
    network = hk.without_apply_rng(hk.transform(lambda x: Convolution(5, 4, 2)(x)))
    params = network.init(jax.random.key(0), images)

    def applied():  # a function of its own, since JAX keeps what it has traced
        return lambda: network.apply(params, images)

    usual, outside = applied()(), str(jax.make_jaxpr(applied())())
    with within_loops():
        product, inside = applied()(), str(jax.make_jaxpr(applied())())
    assert "conv_general_dilated" in outside
    assert "conv_general_dilated" not in inside
    np.testing.assert_allclose(product, usual, rtol=1e-5, atol=1e-6)
    assert str(jax.make_jaxpr(applied())()) == outside


def test_gradients_of_weights_have_their_form_there_too():
    network = make_feed_forward_network(lambda: hk.Linear(3), specs.Array((5,), np.float32))
    params, inputs = network.init(jax.random.key(0)), np.ones((4, 6, 5), np.float32)

    def gradient():  # a function of its own, since JAX keeps what it has traced
        return jax.grad(
            lambda params, x: (jax.vmap(network.apply, (None, 0))(params, x) ** 2).sum()
        )

    outside = str(jax.make_jaxpr(gradient())(params, inputs))
    usual = gradient()(params, inputs)
    with within_loops():
        inside = str(jax.make_jaxpr(gradient())(params, inputs))
        found = jax.jit(gradient())(params, inputs)
        assert jax.tree.structure(network.init(jax.random.key(0))) == jax.tree.structure(params)
    assert "optimization_barrier" in inside
    assert "optimization_barrier" not in outside
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), found, usual)
