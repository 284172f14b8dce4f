"""Networks whose functions are compiled, random parameters, and a layer by its definition."""

import jax
import numpy as np


def compiled(network):
    """The same network; its functions are compiled as a whole, not operation by operation."""
    return network._replace(**{name: jax.jit(f) for name, f in network._asdict().items()})


def random_params(network, seed=0, scale=1.0):
    """Normally distributed, biases too (Haiku's are zero)."""
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: scale * rng.normal(size=x.shape).astype(x.dtype), shapes)


def dense(params, name, x):
    """The output of a linear layer, in double precision."""
    return x @ np.asarray(params[name]["w"], np.float64) + np.asarray(params[name].get("b", 0.0))
