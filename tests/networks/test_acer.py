"""ACER's networks: shapes, the paper's sizes, what is shared, and memory."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from dm_env import specs

from retrax.networks import make_acer_network, make_advantage_network, make_feed_forward_network

VECTOR = specs.Array((3,), np.float32)
DISCRETE = specs.DiscreteArray(4)
CONTINUOUS = specs.BoundedArray((2,), np.float32, -1.0, 1.0)
TINY = {"vector_sizes": (5,), "hidden_size": 6}


def unrolled(network, observations, seed=0):
    params = network.init(jax.random.key(seed))
    is_first = jnp.zeros(len(observations), bool)
    return params, network.unroll(params, observations, is_first, network.initial_state())[0]


def vectors(seed, steps):
    return np.random.default_rng(seed).normal(size=(steps, 3)).astype(np.float32)


def test_discrete_outputs():
    _, output = unrolled(make_acer_network(VECTOR, DISCRETE, **TINY), vectors(0, 7))
    assert output.policy.shape == output.q.shape == (7, 4)
    np.testing.assert_allclose(output.policy.sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(output.policy, 0.25, atol=0.1)  # nearly uniform at first


def test_continuous_outputs():
    _, output = unrolled(make_acer_network(VECTOR, CONTINUOUS, **TINY), vectors(0, 7))
    assert output.policy.shape == (7, 2)
    assert output.value.shape == (7,)
    assert output.features.shape == (7, 6)
    assert jnp.abs(output.policy).max() < 0.5  # near the middle of the bounds at first


def test_the_papers_network_for_images():
    image = specs.Array((84, 84, 4), np.uint8)
    network = make_acer_network(image, DISCRETE)
    params = jax.eval_shape(network.init, jax.random.key(0))
    shapes = sorted(x.shape for x in jax.tree.leaves(params) if len(x.shape) > 1)
    assert shapes == [
        (3, 3, 64, 64),
        (4, 4, 32, 64),
        (8, 8, 4, 32),
        (512, 4),
        (512, 4),
        (3136, 512),
    ]


def test_layers_are_linear_with_relu():
    network = make_acer_network(VECTOR, DISCRETE, **TINY)
    x = vectors(1, 3)
    params, output = unrolled(network, x)
    flat = {name.split("/")[-1]: layer for name, layer in params.items()}
    assert set(flat) == {"linear", "hidden", "policy", "q"}
    for name in ("linear", "hidden"):
        x = np.maximum(x @ flat[name]["w"] + flat[name]["b"], 0.0)
    np.testing.assert_allclose(output.q, x @ flat["q"]["w"] + flat["q"]["b"], rtol=1e-4, atol=1e-5)
    policy = oracles._softmax(np.asarray(x @ flat["policy"]["w"] + flat["policy"]["b"]))
    np.testing.assert_allclose(output.policy, policy, rtol=1e-5)


def test_a_gaussians_mean_has_a_tanh_and_its_features_are_the_values():
    """With separate streams; weights ten times as large, so that the tanh bends."""
    network = make_acer_network(VECTOR, CONTINUOUS, shared=False, **TINY)
    params = jax.tree.map(lambda x: 10.0 * x, jax.jit(network.init)(jax.random.key(0)))
    observations, is_first = vectors(1, 3), jnp.zeros(3, bool)
    output, _ = jax.jit(network.unroll)(params, observations, is_first, network.initial_state())

    def features(stream):
        layers = {n.split("/")[-1]: w for n, w in params.items() if f"/{stream}_stream/" in n}
        x = observations
        for name in ("linear", "hidden"):
            x = np.maximum(x @ layers[name]["w"] + layers[name]["b"], 0.0)
        return x

    heads = {name.split("/~_heads/")[-1]: w for name, w in params.items()}
    of_policy, of_value = features("policy"), features("value")
    linear = of_policy @ heads["policy"]["w"] + heads["policy"]["b"]
    assert np.abs(linear).max() > 1.0
    np.testing.assert_allclose(output.policy, np.tanh(linear), rtol=1e-4, atol=1e-5)
    value = of_value @ heads["value"]["w"] + heads["value"]["b"]
    np.testing.assert_allclose(output.value, value[:, 0], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(output.features, of_value, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shared", [True, False])
def test_streams_are_shared_or_not(shared):
    network = make_acer_network(VECTOR, DISCRETE, shared=shared, **TINY)
    params, _ = unrolled(network, vectors(0, 2))

    def policy(params):
        args = (vectors(0, 2), jnp.zeros(2, bool), network.initial_state())
        return jnp.square(network.unroll(params, *args)[0].policy).sum()

    moved = {name for name, g in jax.grad(policy)(params).items() if np.abs(g["w"]).max() > 0}
    streams = {name.split("/~/")[1] for name in params if "_stream" in name}
    assert streams == ({"shared_stream"} if shared else {"policy_stream", "value_stream"})
    assert any("policy" in name for name in moved)
    assert not any("value_stream" in name for name in moved)


@pytest.mark.parametrize("shared", [True, False])
def test_a_stream_for_q_alone(shared):
    network = make_acer_network(VECTOR, CONTINUOUS, shared=shared, separate_q=True, **TINY)
    params = jax.jit(network.init)(jax.random.key(0))

    def outputs(params):
        args = (vectors(0, 2), jnp.zeros(2, bool), network.initial_state())
        return network.unroll(params, *args)[0]

    moves = jax.jit(jax.jacrev(outputs))(params)
    for name, jacobians in moves._asdict().items():
        moved = {module for module, g in jacobians.items() if np.abs(g["w"]).max() > 0}
        assert {("/q_stream/" in module) for module in moved} == {name == "features"}
    assert {module for module in params if "/q_stream/" in module} == {
        module for module, g in moves.features.items() if np.abs(g["w"]).max() > 0
    }
    discrete = make_acer_network(VECTOR, DISCRETE, separate_q=True, **TINY)
    assert not any("q_stream" in module for module in discrete.init(jax.random.key(0)))


def test_memory_is_carried_and_reset():
    network = make_acer_network(VECTOR, DISCRETE, memory_size=4, **TINY)
    params = network.init(jax.random.key(0))
    x = vectors(0, 4)
    unroll = jax.jit(network.unroll)
    first = jnp.array([True, False, True, False])
    whole, last = unroll(params, x, first, network.initial_state())
    part, state = unroll(params, x[:1], first[:1], network.initial_state())
    rest, other = unroll(params, x[1:], first[1:], state)
    np.testing.assert_allclose(np.concatenate([part.q, rest.q]), whole.q, rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), last, other)
    fresh, _ = unroll(params, x[2:], first[2:], network.initial_state())
    np.testing.assert_allclose(fresh.q, whole.q[2:], rtol=1e-5, atol=1e-6)


def test_the_stream_of_q_has_a_memory_of_its_own():
    network = make_acer_network(VECTOR, CONTINUOUS, memory_size=4, separate_q=True, **TINY)
    params, whole = unrolled(network, x := vectors(0, 3))
    first = jnp.zeros(3, bool)
    _, (shared, q) = network.unroll(params, x[:2], first[:2], network.initial_state())
    rest, _ = network.unroll(params, x[2:], first[2:], (shared, q))
    np.testing.assert_allclose(rest.features, whole.features[2:], rtol=1e-5, atol=1e-6)
    swapped, _ = network.unroll(params, x[2:], first[2:], (q, q))
    np.testing.assert_array_equal(swapped.features, rest.features)
    assert jnp.abs(swapped.value - rest.value).max() > 1e-4


def test_advantage_network_depends_on_both_inputs():
    network = make_advantage_network(jax.ShapeDtypeStruct((6,), np.float32), CONTINUOUS, 8)
    params = network.init(jax.random.key(0))
    apply = jax.grad(network.apply, argnums=(1, 2))
    for gradient in apply(params, jnp.ones(6), jnp.ones(2)):
        assert jnp.abs(gradient).max() > 0
    batched = network.apply(params, jnp.ones((5, 6)), jnp.ones((5, 2)))
    assert batched.shape == (5,)
    np.testing.assert_allclose(batched[0], network.apply(params, jnp.ones(6), jnp.ones(2)))


def test_a_network_of_a_function_without_parameters():
    network = make_feed_forward_network(lambda: jnp.add, VECTOR, VECTOR)
    assert network.init(jax.random.key(0)) == {}
    np.testing.assert_array_equal(network.apply({}, jnp.ones(3), jnp.ones(3)), [2.0, 2.0, 2.0])


def test_observations_that_no_network_takes_are_refused():
    with pytest.raises(ValueError, match="shape \\(3,\\) and dtype int64: allowed are"):
        make_acer_network(specs.Array((3,), np.int64), DISCRETE)
