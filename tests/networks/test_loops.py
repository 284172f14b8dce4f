"""Networks within loops are the same functions, with a gradient in another form."""

import haiku as hk
import jax
import numpy as np
from dm_env import specs

from retrax.networks.base import make_feed_forward_network
from retrax.networks.loops import within_loops


def test_gradients_of_weights_have_their_form_within_the_block_and_only_there():
    network = make_feed_forward_network(lambda: hk.Linear(3), specs.Array((5,), np.float32))
    params, inputs = network.init(jax.random.key(0)), np.ones((4, 6, 5), np.float32)

    def gradient():  # a function of its own, since JAX keeps what it has traced
        return jax.grad(
            lambda params, x: (jax.vmap(network.apply, (None, 0))(params, x) ** 2).sum()
        )

    outside = str(jax.make_jaxpr(gradient())(params, inputs))
    usual = gradient()(params, inputs)
    with within_loops():
        inside = str(jax.make_jaxpr(gradient())(params, inputs))
        found = jax.jit(gradient())(params, inputs)
        assert jax.tree.structure(network.init(jax.random.key(0))) == jax.tree.structure(params)
    assert "optimization_barrier" in inside
    assert "optimization_barrier" not in outside
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), found, usual)
