"""Agent57's networks: the papers' sizes, what the LSTM reads, dueling heads, what they refuse."""

import functools

import chex
import haiku as hk
import jax
import numpy as np
from compiled_networks import compiled, dense, random_params, random_r2d2_inputs
from dm_env import specs

from retrax.networks import make_agent57_networks

T, A, N = 5, 3, 4
VECTORS = specs.Array((4,), np.float32)
IMAGES = specs.Array((84, 84, 1), np.uint8)
MODULE = "r2_d2_module"


def make(observation=VECTORS, **changes):
    sizes = {
        "vector_sizes": (6,),
        "torso_size": 5,
        "lstm_size": 4,
        "head_size": 7,
        "embedding_size": 2,
        "classifier_size": 8,
        "novelty_size": 3,
    }
    return make_agent57_networks(observation, num_actions=A, num_arms=N, **(sizes | changes))


@functools.cache
def make_value():
    network = compiled(make().value)
    return network, random_params(network)


def random_inputs(seed):
    return random_r2d2_inputs(seed, (T,), A, N)


def shapes_of(network):
    params = jax.eval_shape(network.init, jax.random.key(0))
    return sorted(layer["w"].shape for layer in params.values())


def test_sizes_are_the_papers():
    """DQN's convolutions, 512 units everywhere; 18 actions, 32 arms and 2 rewards beside them."""
    networks = make_agent57_networks(IMAGES, num_actions=18, num_arms=32)
    convolutions = [(8, 8, 1, 32), (4, 4, 32, 64), (3, 3, 64, 64)]
    read = 512 + 18 + 1 + 1 + 32
    layers = [(7 * 7 * 64, 512), (read + 512, 4 * 512), (512, 512), (512, 512), (512, 1), (512, 18)]
    assert shapes_of(networks.value) == sorted([*convolutions, *layers])
    assert shapes_of(networks.embedding) == sorted([*convolutions, (7 * 7 * 64, 32)])
    assert shapes_of(networks.novelty) == sorted([*convolutions, (7 * 7 * 64, 128)])
    assert shapes_of(networks.classifier) == [(64, 128), (128, 18)]


def test_value_network_is_the_numpy_one():
    network, params = make_value()
    inputs, is_first = random_inputs(0), np.array([False, False, True, False, False])
    hidden, cell = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    state = jax.tree.unflatten(jax.tree.structure(network.initial_state()), [hidden, cell])
    values, last = network.unroll(params, inputs, is_first, state)

    def layer(name, x):
        return dense(params, f"{MODULE}/{name}", x)

    def relu(x):
        return np.maximum(x, 0.0)

    features = relu(layer("~/linear", relu(layer("~/torso/~/linear", inputs.observation))))
    read = np.concatenate(
        [
            features,
            np.eye(A)[inputs.previous_action],
            inputs.reward[:, None],
            inputs.intrinsic_reward[:, None],
            np.eye(N)[inputs.arm],
        ],
        axis=1,
    )
    unroll = hk.transform(lambda *x: hk.dynamic_unroll(hk.ResetCore(hk.LSTM(4)), *x)).apply
    lstm = {"lstm/linear": params[f"{MODULE}/~/memory/~/lstm/linear"]}
    outputs, wanted = unroll(lstm, None, (read, is_first), hk.LSTMState(hidden, cell))
    value, advantage = (
        layer(f"~_head/{name}_output", relu(layer(f"~_head/{name}_hidden", outputs)))
        for name in ("value", "advantage")
    )
    expected = value + advantage - advantage.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)
    chex.assert_trees_all_close(jax.tree.leaves(last), [*wanted], rtol=1e-4, atol=1e-4)


def test_embedding_and_classifier_by_hand():
    networks = make()
    embedding, classifier = map(random_params, (networks.embedding, networks.classifier))
    x = random_inputs(0).observation

    hidden = np.maximum(dense(embedding, "embedding_module/~/torso/~/linear", x), 0)
    f = dense(embedding, "embedding_module/~/output", hidden)
    np.testing.assert_allclose(
        jax.jit(networks.embedding.apply)(embedding, x), f, rtol=1e-4, atol=1e-5
    )
    both = np.concatenate([f[:-1], f[1:]], axis=1)
    hidden = np.maximum(dense(classifier, "action_classifier/~/hidden", both), 0)
    logits = dense(classifier, "action_classifier/~/output", hidden)
    actual = jax.jit(networks.classifier.apply)(classifier, f[:-1], f[1:])
    np.testing.assert_allclose(actual, logits, rtol=1e-4, atol=1e-4)
