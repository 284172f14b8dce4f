"""The memory is Haiku's LSTM with resets, or a layer without memory."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax.networks import Memory


def test_without_recurrence_it_is_a_layer_with_an_empty_state():
    inputs, resets = np.random.default_rng(0).normal(size=(6, 3)), np.arange(6) % 2 == 0
    network = hk.transform(lambda: Memory(4, recurrent=False)(jnp.float32(inputs), resets, ()))
    params = network.init(jax.random.key(0))
    outputs, state = network.apply(params, None)
    assert state == ()
    layer = params["memory/~/linear"]
    expected = np.tanh(inputs @ layer["w"] + layer["b"])
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("num_steps", "num_inputs", "size"), [(1, 2, 3), (5, 3, 4)])
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
