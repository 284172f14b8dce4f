"""The memory against a NumPy LSTM, its resets, and the layer without memory."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from retrax.networks import Memory

T, D, SIZE = 6, 3, 4
RESETS = [0, 0, 1, 0, 1, 1]


@functools.cache
def transformed(recurrent):
    """`apply(params, inputs [T, D], is_first [T], state)`, and random parameters and inputs."""

    def unroll(inputs, is_first, state):
        return Memory(SIZE, recurrent)(inputs, is_first, state)

    network = hk.without_apply_rng(hk.transform(unroll))
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(T, D)).astype(np.float32)
    arguments = inputs, np.zeros(T, bool), initial_state(recurrent)
    shapes = jax.eval_shape(network.init, jax.random.key(0), *arguments)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)
    return jax.jit(network.apply), params, inputs


def initial_state(recurrent):
    network = hk.transform(lambda: Memory(SIZE, recurrent).initial_state())
    return network.apply({}, None)


def random_state(seed):
    rng = np.random.default_rng(seed)
    return hk.LSTMState(*rng.normal(size=(2, SIZE)).astype(np.float32))


@pytest.mark.parametrize("is_first", [[0] * T, [1] + [0] * (T - 1), RESETS, [1] * T])
def test_is_the_numpy_lstm(is_first):
    apply, params, inputs = transformed(recurrent=True)
    is_first = np.array(is_first, bool)
    start = random_state(1)
    outputs, state = apply(params, inputs, is_first, start)
    layer = params["memory/~/lstm/linear"]
    expected, (hidden, cell) = oracles.lstm(
        inputs, is_first, start.hidden, start.cell, layer["w"], layer["b"]
    )
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state.hidden, hidden, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state.cell, cell, rtol=1e-5, atol=1e-5)


def test_without_recurrence_it_is_a_layer_with_an_empty_state():
    apply, params, inputs = transformed(recurrent=False)
    assert initial_state(recurrent=False) == ()
    outputs, state = apply(params, inputs, np.array(RESETS, bool), ())
    assert state == ()
    layer = params["memory/~/linear"]
    expected = np.tanh(inputs @ layer["w"] + layer["b"])
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("num_steps", "num_inputs", "size"), [(1, 2, 3), (2, 1, 1), (5, 3, 4)])
def test_is_haikus_lstm_with_the_same_initial_parameters_and_gradients(num_steps, num_inputs, size):
    rng = np.random.default_rng(num_steps)
    inputs = rng.normal(size=(8, num_steps, num_inputs)).astype(np.float32)
    is_first = rng.random((8, num_steps)) < 0.3
    state = hk.LSTMState(*rng.normal(size=(2, 8, size)).astype(np.float32))
    weights = rng.normal(size=(8, num_steps, size)).astype(np.float32)

    def haikus(inputs, is_first, state):
        return hk.dynamic_unroll(hk.ResetCore(hk.LSTM(size)), (inputs, is_first), state)

    def ours(inputs, is_first, state):
        return Memory(size)(inputs, is_first, state)

    def everything(unroll):
        """Initial parameters, outputs, states, and gradients by all inputs."""
        network = hk.without_apply_rng(hk.transform(unroll))
        first = jax.tree.map(lambda x: x[0], (inputs, is_first, state))
        params = jax.jit(network.init)(jax.random.key(0), *first)

        def loss(params, inputs, state):
            batch = jax.vmap(network.apply, (None, 0, 0, 0))
            outputs, (hidden, cell) = batch(params, inputs, is_first, state)
            total = jnp.sum(weights * outputs) + jnp.sum(jnp.sin(hidden)) + jnp.sum(jnp.cos(cell))
            return total, (outputs, hidden, cell)

        gradients = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(params, inputs, state)
        return jax.tree.leaves((params, gradients))

    for expected, found in zip(everything(haikus), everything(ours), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
