"""The categorical dueling network against NumPy: streams, mean subtraction, sizes, rejections."""

import functools

import jax
import numpy as np
import pytest
from compiled_networks import compiled, dense, random_params
from dm_env import specs

from retrax.networks import make_categorical_dueling_network

A, N = 3, 5
VECTORS = specs.Array((4,), np.float32)
IMAGES = specs.Array((84, 84, 4), np.uint8)
MODULE = "categorical_dueling_module/~"


@functools.cache
def make(num_atoms=N):
    sizes = {"num_actions": A, "num_atoms": num_atoms, "vector_sizes": (6,), "hidden_size": 7}
    return compiled(make_categorical_dueling_network(VECTORS, **sizes))


def observations():
    return np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)


def test_logits_are_the_numpy_ones():
    network = make()
    params = random_params(network)
    logits = network.apply(params, observations())

    def layer(name, x):
        return dense(params, f"{MODULE}/{name}", x)

    features = np.maximum(layer("torso/~/linear", observations()), 0.0)
    value, advantage = (
        layer(f"head/~/{name}_output", np.maximum(layer(f"head/~/{name}_hidden", features), 0.0))
        for name in ("value", "advantage")
    )
    assert logits.shape == (2, A, N)
    for b in range(2):
        for n in range(N):
            of_actions = [advantage[b, a * N + n] for a in range(A)]
            for a in range(A):
                expected = value[b, n] + of_actions[a] - sum(of_actions) / A
                np.testing.assert_allclose(logits[b, a, n], expected, rtol=1e-4, atol=1e-4)


def test_sizes_for_images_are_the_papers():
    """DQN's convolutions, 512 units in each stream, 51 atoms; 18 actions."""
    network = make_categorical_dueling_network(IMAGES, num_actions=18)
    params = jax.eval_shape(network.init, jax.random.key(0))
    convolutions = [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)]
    streams = [(7 * 7 * 64, 512)] * 2 + [(512, 51), (512, 18 * 51)]
    assert sorted(layer["w"].shape for layer in params.values()) == sorted(convolutions + streams)


def test_one_atom_is_a_plain_dueling_network():
    network = make(num_atoms=1)
    assert network.apply(random_params(network), observations()).shape == (2, A, 1)


def test_observations_that_no_torso_takes_are_refused():
    with pytest.raises(ValueError, match=r"shape \(4,\) and dtype int64"):
        make_categorical_dueling_network(specs.Array((4,), np.int64), num_actions=A)
