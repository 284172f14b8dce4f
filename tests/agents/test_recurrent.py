"""Acting with a memory: resets, what is stored with rows, and the memory of a learner's unroll."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import StepType

from retrax.agents import recurrent
from retrax.datatypes import Row, TimeStep
from retrax.networks import RecurrentNetwork


def summing(memory):
    """The memory is the sum of the episode's observations, the output `params` times that."""

    def step(params, observation, is_first, state):
        state = jnp.where(is_first, 0.0, state) + observation
        return params * state, state

    return RecurrentNetwork(None, lambda: memory, None, step)


def step(step_type, observation):
    return TimeStep(np.int32(step_type), np.float32(0), np.float32(1), np.float32(observation))


def test_reading_is_a_sum_that_starts_again_on_first_steps():
    network = summing(jnp.zeros(2))
    key = jax.random.key(0)
    state = recurrent.begin(key, jnp.int32(3), 8, network=network)
    assert state.key is key
    np.testing.assert_array_equal(state.memory, [0.0, 0.0])
    types = [StepType.FIRST, StepType.MID, StepType.LAST, StepType.FIRST, StepType.MID]
    observations = np.arange(10.0).reshape(5, 2)
    expected = np.stack([observations[:1].sum(0), observations[:2].sum(0), observations[:3].sum(0),
                         observations[3], observations[3:].sum(0)])  # fmt: skip
    memory = state.memory
    for step_type, observation, total in zip(types, observations, expected, strict=True):
        output, memory = recurrent.read(2.0, memory, step(step_type, observation), network=network)
        np.testing.assert_array_equal(memory, total)
        np.testing.assert_array_equal(output, 2.0 * total)


@pytest.mark.parametrize("stored", [True, False])
def test_the_memory_of_an_unroll_is_the_stored_one_or_zeros(stored):
    network = summing(jnp.zeros(2))
    memory = jnp.array([4.0, 5.0])
    extras = recurrent.memory_extras(memory, stored)
    rows = Row(None, None, None, None, None, None, {"mu": 0.0, **extras})
    assert set(extras) == ({"memory"} if stored else set())
    actual = recurrent.initial_memory(rows, network=network, stored=stored)
    np.testing.assert_array_equal(actual, memory if stored else [0.0, 0.0])


@pytest.mark.parametrize(("memory", "expected"), [(jnp.zeros(2), True), (((), ()), False)])
def test_a_network_has_memory_if_its_state_has_arrays(memory, expected):
    assert recurrent.has_memory(summing(memory)) is expected
