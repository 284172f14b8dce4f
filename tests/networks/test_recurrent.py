"""What all recurrent networks keep: steps are the unroll, episodes are apart, batches are loops."""

import functools

import chex
import jax
import numpy as np
import pytest
from compiled_networks import compiled, random_params, random_r2d2_inputs, random_state
from dm_env import specs
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.networks import make_acer_network, make_agent57_networks, make_reactor_network

T, A, ARMS = 6, 3, 4
VECTORS = specs.Array((4,), np.float32)
DISCRETE, CONTINUOUS = specs.DiscreteArray(A), specs.BoundedArray((2,), np.float32, -1.0, 1.0)
SMALL = {"vector_sizes": (6,)}
ACER = {**SMALL, "hidden_size": 5, "masked": True}
NETWORKS = {
    "acer": lambda size: make_acer_network(VECTORS, DISCRETE, memory_size=size, **ACER),
    "acer_with_q_apart": lambda size: make_acer_network(
        VECTORS, CONTINUOUS, memory_size=size, shared=False, separate_q=True, **ACER
    ),
    "agent57": lambda size: (
        make_agent57_networks(
            VECTORS,
            num_actions=A,
            num_arms=ARMS,
            torso_size=5,
            lstm_size=4,
            head_size=7,
            recurrent=size > 0,
            **SMALL,
        ).value
    ),
    "reactor": lambda size: make_reactor_network(
        VECTORS,
        num_actions=A,
        num_atoms=5,
        policy_epsilon=0.3,
        shared_size=5,
        memory_size=4,
        head_size=3,
        recurrent=size > 0,
        masked=True,
        **SMALL,
    ),
}


@functools.cache
def make(name, memory_size=4):
    """A network, and parameters small enough that outputs keep the digits that tests compare."""
    network = compiled(NETWORKS[name](memory_size))
    return network, random_params(network, scale=0.5)


def inputs_of(name, seed, shape=(T,)):
    if name == "agent57":
        return random_r2d2_inputs(seed, shape, A, ARMS)
    numbers = np.random.default_rng(seed).normal(size=(*shape, 4))  # and masks of two or three
    return np.where([True, False, True, True], numbers, numbers > 0).astype(np.float32)


def at(tree, index):
    return jax.tree.map(lambda x: x[index], tree)


assert_close = functools.partial(chex.assert_trees_all_close, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=20, deadline=None)
@given(firsts=st.lists(st.booleans(), min_size=T, max_size=T), seed=st.integers(0, 2**31))
def test_step_by_step_is_the_unroll(name, firsts, seed):
    """Whatever rows begin episodes; here the test itself puts the initial state there."""
    (network, params), inputs = make(name), inputs_of(name, seed)
    start = random_state(network, seed)
    unrolled, last = network.unroll(params, inputs, np.array(firsts), start)
    outputs, state, flagged_state = [], start, start
    for t, first in enumerate(firsts):
        state = network.initial_state() if first else state
        output, state = network.step(params, at(inputs, t), np.False_, state)
        flagged, flagged_state = network.step(params, at(inputs, t), np.bool_(first), flagged_state)
        assert_close((flagged, flagged_state), (output, state))
        outputs.append(output)
    assert_close((unrolled, last), (jax.tree.map(lambda *x: np.stack(x), *outputs), state))


@pytest.mark.parametrize("name", NETWORKS)
def test_without_memory_nothing_of_the_past_matters_and_with_it_all_does(name):
    inputs, order = inputs_of(name, 0), np.array([3, 1, 5, 0, 2, 4])
    none = np.zeros(T, bool)
    network, params = make(name, 0)
    assert jax.tree.leaves(network.initial_state()) == []
    output, state = network.unroll(params, inputs, none, network.initial_state())
    assert state == network.initial_state()
    shuffled, _ = network.unroll(params, at(inputs, order), ~none, network.initial_state())
    assert_close(shuffled, at(output, order))

    network, params = make(name)
    starts = (random_state(network, seed) for seed in (0, 1))
    one, other = (network.unroll(params, inputs, none, start)[0] for start in starts)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.any(x != y, axis=tuple(range(1, x.ndim))).all()
