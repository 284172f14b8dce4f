"""One step of an optimiser, against its definition."""

import jax.numpy as jnp
import numpy as np
import optax

from retrax.agents.optimization import descend


def test_descent_with_momentum_is_the_definition():
    optimizer = optax.sgd(0.1, momentum=0.5)
    params = {"w": jnp.array([1.0, -2.0])}
    state = optimizer.init(params)
    w, trace = np.array([1.0, -2.0]), np.zeros(2)
    for gradient in ([1.0, 2.0], [-3.0, 0.5], [0.0, 0.0]):
        params, state = descend(optimizer, {"w": jnp.array(gradient)}, state, params)
        trace = 0.5 * trace + np.array(gradient)
        w = w - 0.1 * trace
        np.testing.assert_allclose(params["w"], w, rtol=1e-6)


def test_the_optimiser_reads_the_parameters():
    optimizer = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(1.0))
    params = jnp.array([2.0])
    new, _ = descend(optimizer, jnp.array([0.0]), optimizer.init(params), params)
    np.testing.assert_allclose(new, [1.0])
