"""Reactor's network: the paper's sizes, blocked gradients, heads, memory, compilation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_networks import compiled, random_params, random_state
from dm_env import specs

from retrax.agents.reactor import Config, make_agent
from retrax.datatypes import EnvironmentSpec
from retrax.networks import ReactorOutput, make_reactor_network

T, A, N, EPSILON = 6, 3, 5, 0.3
IMAGES = specs.Array((6, 6, 1), np.uint8)
VECTORS = specs.Array((4,), np.float32)
SPECS = {"images": IMAGES, "vectors": VECTORS}
MODULE = "reactor_module"


@functools.cache
def make_network(kind, **changes):
    sizes = {
        "num_actions": A,
        "num_atoms": N,
        "policy_epsilon": EPSILON,
        "convolutions": ((2, 3, 2),),
        "vector_sizes": (6,),
        "shared_size": 5,
        "memory_size": 4,
        "head_size": 3,
    }
    return compiled(make_reactor_network(SPECS[kind], **(sizes | changes)))


def random_inputs(seed, kind="vectors"):
    rng = np.random.default_rng(seed)
    size = (T, *SPECS[kind].shape)
    observations = (
        rng.integers(0, 256, size, np.uint8) if kind == "images" else rng.normal(size=size)
    )
    return observations.astype(SPECS[kind].dtype), rng.random(T) < 0.3


def test_sizes_are_the_papers():
    """The table of layers, with 18 actions and 51 atoms; CReLU doubles what follows a layer."""
    spec = EnvironmentSpec(specs.Array((84, 84, 1), np.uint8), specs.DiscreteArray(18))
    agent = make_agent(spec, Config())
    params = jax.eval_shape(agent.init, jax.random.key(0)).params
    shapes = {name.removeprefix(MODULE): layer["w"].shape for name, layer in params.items()}
    assert shapes == {
        "/~/torso/~/conv2_d": (8, 8, 1, 16),
        "/~/torso/~/conv2_d_1": (4, 4, 32, 32),
        "/~/torso/~/conv2_d_2": (3, 3, 64, 32),
        "/~/shared": (7 * 7 * 64, 128),
        "/~/policy_memory/~/lstm/linear": (256 + 128, 4 * 128),
        "/~/value_memory/~/lstm/linear": (256 + 128, 4 * 128),
        "/~_head/policy_hidden": (128, 32),
        "/~_head/policy_output": (64, 18),
        "/~_head/value_hidden": (128, 32),
        "/~_head/value_output": (64, 51),
        "/~_head/advantage_hidden": (128, 32),
        "/~_head/advantage_output": (64, 18 * 51),
    }
    assert all(layer["b"].shape == layer["w"].shape[-1:] for layer in params.values())


@pytest.mark.parametrize("kind", SPECS)
def test_the_policy_does_not_train_what_is_shared_and_the_values_train_the_rest(kind):
    """Torso, shared layer, and all that belongs to the values."""
    network = make_network(kind)
    shapes = ReactorOutput(policy=(T, A), logits=(T, A, N))
    weights = [np.random.default_rng(1).normal(size=shape).astype(np.float32) for shape in shapes]

    def random_functions(params):
        output, _ = network.unroll(params, *random_inputs(0, kind), random_state(network))
        return ReactorOutput(*map(jnp.vdot, output, weights))

    gradients = jax.jit(jax.jacrev(random_functions))(random_params(network))
    for of, modules in gradients._asdict().items():
        for name, layer in modules.items():
            trained = max(np.abs(x).max() for x in jax.tree.leaves(layer)) > 0.0
            assert trained == (("policy" in name) == (of == "policy")), (of, name)


def test_value_and_advantage_are_summed_without_a_mean():
    network = make_network("vectors")
    params = random_params(network, scale=0.0)
    value = np.arange(N, dtype=np.float32)
    advantage = 10.0 * np.arange(1, A * N + 1, dtype=np.float32)  # the mean is far from zero
    params[f"{MODULE}/~_head/value_output"]["b"] = value
    params[f"{MODULE}/~_head/advantage_output"]["b"] = advantage
    output, _ = network.unroll(params, *random_inputs(0), network.initial_state())
    expected = [[n + 10.0 * (a * N + n + 1) for n in range(N)] for a in range(A)]
    np.testing.assert_array_equal(output.logits, np.broadcast_to(expected, (T, A, N)))
    np.testing.assert_allclose(output.policy, np.full((T, A), 1 / A), rtol=1e-6)
