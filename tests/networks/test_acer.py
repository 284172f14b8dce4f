"""ACER's networks: shapes, the paper's sizes, what is shared, and memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled_networks import compiled, dense, random_params
from dm_env import specs

from retrax.networks import make_acer_network, make_advantage_network, make_feed_forward_network

VECTOR = specs.Array((3,), np.float32)
DISCRETE = specs.DiscreteArray(4)
CONTINUOUS = specs.BoundedArray((2,), np.float32, -1.0, 1.0)
TINY = {"vector_sizes": (5,), "hidden_size": 6}
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
NO_FIRST = np.zeros(4, bool)


@functools.cache
def make(discrete, **changes):
    return compiled(
        make_acer_network(VECTOR, DISCRETE if discrete else CONTINUOUS, **TINY, **changes)
    )


def outputs(network, params):
    return network.unroll(params, X, NO_FIRST, network.initial_state())[0]


def largest(difference):
    return np.abs(difference).max()


def test_policies_are_nearly_uniform_or_in_the_middle_of_the_bounds_at_first():
    discrete, continuous = make(discrete=True), make(discrete=False)
    output = outputs(discrete, discrete.init(jax.random.key(0)))
    np.testing.assert_allclose(np.sum(output.policy, -1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(output.policy, np.full((4, 4), 0.25), atol=0.1)
    output = outputs(continuous, continuous.init(jax.random.key(0)))
    assert output.policy.shape == (4, 2)
    assert largest(output.policy) < 0.5


def test_the_papers_network_for_images():
    image = specs.Array((84, 84, 4), np.uint8)
    network = make_acer_network(image, DISCRETE)
    params = jax.eval_shape(network.init, jax.random.key(0))
    shapes = sorted(x.shape for x in jax.tree.leaves(params) if len(x.shape) > 1)
    convolutions = [(3, 3, 64, 64), (4, 4, 32, 64), (8, 8, 4, 32)]
    assert shapes == [*convolutions, (512, 4), (512, 4), (7 * 7 * 64, 512)]


def test_layers_are_linear_with_relu():
    network = make(discrete=True)
    x, params = X, random_params(network, scale=0.5)
    output = outputs(network, params)
    flat = {name.split("/")[-1]: layer for name, layer in params.items()}
    assert set(flat) == {"linear", "hidden", "policy", "q"}
    for name in ("linear", "hidden"):
        x = np.maximum(dense(flat, name, x), 0.0)
    np.testing.assert_allclose(output.q, dense(flat, "q", x), rtol=1e-4, atol=1e-5)
    policy = oracles._softmax(dense(flat, "policy", x))
    np.testing.assert_allclose(output.policy, policy, rtol=1e-5)


def test_a_gaussians_mean_has_a_tanh_and_its_features_are_the_values():
    """With separate streams; weights are so large that the tanh bends."""
    network = make(discrete=False, shared=False)
    params = random_params(network)
    output = outputs(network, params)

    def features(stream):
        layers = {n.split("/")[-1]: w for n, w in params.items() if f"/{stream}_stream/" in n}
        x = X
        for name in ("linear", "hidden"):
            x = np.maximum(dense(layers, name, x), 0.0)
        return x

    heads = {name.split("/~_heads/")[-1]: w for name, w in params.items()}
    of_policy, of_value = features("policy"), features("value")
    linear = dense(heads, "policy", of_policy)
    assert np.abs(linear).max() > 1.0
    np.testing.assert_allclose(output.policy, np.tanh(linear), rtol=1e-4, atol=1e-5)
    value = dense(heads, "value", of_value)
    np.testing.assert_allclose(output.value, value[:, 0], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(output.features, of_value, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shared", [True, False])
def test_a_stream_for_q_alone(shared):
    network = make(discrete=False, shared=shared, separate_q=True)
    params = random_params(network)
    moves = jax.jit(jax.jacrev(functools.partial(outputs, network)))(params)
    for name, jacobians in moves._asdict().items():
        moved = {module for module, g in jacobians.items() if largest(g["w"]) > 0}
        assert {("/q_stream/" in module) for module in moved} == {name == "features"}
    assert {module for module in params if "/q_stream/" in module} == {
        module for module, g in moves.features.items() if largest(g["w"]) > 0
    }
    discrete = random_params(make(discrete=True, separate_q=True))
    assert not any("q_stream" in module for module in discrete)


def test_advantage_network_depends_on_both_inputs():
    network = make_advantage_network(jax.ShapeDtypeStruct((6,), np.float32), CONTINUOUS, 8)
    params = random_params(network)
    inputs = np.ones(6, np.float32), np.ones(2, np.float32)
    one, gradients = jax.jit(jax.value_and_grad(network.apply, argnums=(1, 2)))(params, *inputs)
    assert all(largest(gradient) > 0 for gradient in gradients)
    batched = jax.jit(network.apply)(params, *(np.tile(x, (5, 1)) for x in inputs))
    assert batched.shape == (5,)
    np.testing.assert_allclose(batched, np.full(5, one), rtol=1e-6)


def test_a_network_of_a_function_without_parameters():
    network = make_feed_forward_network(lambda: jnp.add, VECTOR, VECTOR)
    assert network.init(jax.random.key(0)) == {}
    np.testing.assert_array_equal(network.apply({}, jnp.ones(3), jnp.ones(3)), [2.0, 2.0, 2.0])
