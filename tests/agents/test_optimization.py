"""One step of an optimiser, against its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from retrax.agents.optimization import descend, gradient_metrics


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


def test_dead_units_are_biases_without_a_gradient():
    gradients = {
        "first": {"w": jnp.zeros((3, 2)), "b": jnp.array([0.0, 3.0])},
        "second": {"b": jnp.array([0.0, 0.0, 4.0])},
    }
    found = gradient_metrics(gradients, "critic_")
    assert found.keys() == {"critic_gradient_norm", "critic_dead_units"}
    np.testing.assert_allclose(found["critic_gradient_norm"], 5.0)
    np.testing.assert_allclose(found["critic_dead_units"], 3 / 5, rtol=1e-6)
    assert found["critic_dead_units"].dtype == jnp.float32
    assert gradient_metrics({"w": jnp.zeros((2, 2))})["dead_units"] == 0


def test_units_that_are_off_for_a_whole_batch_are_dead():
    def loss(params):
        hidden = jax.nn.relu(jnp.eye(3) @ params["w"] + params["b"])  # three inputs
        return jnp.sum(jnp.tanh(hidden))

    params = {"w": jnp.ones((3, 4)), "b": jnp.array([-2.0, -0.5, 0.5, -9.0])}
    assert gradient_metrics(jax.grad(loss)(params))["dead_units"] == 0.5
