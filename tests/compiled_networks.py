"""Networks whose functions are compiled, random parameters, and a layer by its definition."""

import jax
import numpy as np

from retrax.networks import R2D2Inputs


def compiled(network):
    """The same network; its functions are compiled as a whole, not operation by operation."""
    return network._replace(**{name: jax.jit(f) for name, f in network._asdict().items()})


def random_params(network, seed=0, scale=1.0):
    """Normally distributed, biases too (Haiku's are zero)."""
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: scale * rng.normal(size=x.shape).astype(x.dtype), shapes)


def random_state(network, seed=0):
    """Of a recurrent network."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), network.initial_state())


def random_r2d2_inputs(seed, shape, num_actions, num_arms):
    """Inputs of Agent57's value network, with observations of four numbers."""
    rng = np.random.default_rng(seed)
    return R2D2Inputs(
        observation=rng.normal(size=(*shape, 4)).astype(np.float32),
        previous_action=rng.integers(num_actions, size=shape).astype(np.int32),
        reward=rng.normal(size=shape).astype(np.float32),
        intrinsic_reward=rng.random(shape).astype(np.float32),
        arm=rng.integers(num_arms, size=shape).astype(np.int32),
    )


def dense(params, name, x):
    """The output of a linear layer, in double precision."""
    return x @ np.asarray(params[name]["w"], np.float64) + np.asarray(params[name].get("b", 0.0))
