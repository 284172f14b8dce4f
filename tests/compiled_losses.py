"""The functions of `retrax.losses`, compiled; what is no function is as it is there.

Without this, each operation of a function is compiled for itself. The variants of chex and some
examples by hand in the tests of the losses call the functions as they are.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np

from retrax import losses

_STATIC = {"n", "num_samples", "transform"}


def f32(*values):
    """Arrays in single precision; integers are int32."""
    kinds = {"i": jnp.int32}
    return [jnp.asarray(x, kinds.get(np.asarray(x).dtype.kind, jnp.float32)) for x in values]


def by_hand(function, expected, rtol=1e-7, **arguments):
    """Checks an example; numbers and lists of them become float32, integers `a` are actions."""
    arrays = {
        name: jnp.int32(x) if name in ("a", "a_t") else np.asarray(x, np.float32)
        for name, x in arguments.items()
    }
    np.testing.assert_allclose(function(**arrays), expected, rtol=rtol)


def single(x):
    """In single precision; a number of steps and a transform are no arrays."""
    types = {"f": np.float32, "i": np.int32, "b": bool}
    return x if isinstance(x, (int, tuple)) else np.asarray(x, types[np.asarray(x).dtype.kind])


def simplex(rng, *shape):
    """Distributions over the last axis, without small probabilities."""
    return 0.9 * rng.dirichlet(np.ones(shape[-1]), shape[:-1]) + 0.1 / shape[-1]


def window(rng, horizon=7, num_actions=3, ends=0.3):
    """Arrays at destination steps: actions, rewards, discounts, policies and cut traces."""
    last = rng.random(horizon) < ends
    pi, a = simplex(rng, horizon, num_actions), rng.integers(num_actions, size=horizon)
    cuts = rng.uniform() * np.minimum(1, pi[np.arange(horizon), a] / rng.uniform(0.1, 1, horizon))
    return {
        "q_t": 3 * rng.normal(size=(horizon, num_actions)),
        "a_t": a,
        "r_t": rng.normal(size=horizon),
        "discount_t": np.where(last & (rng.random(horizon) < 0.5), 0.0, rng.uniform(0.8, 1.0)),
        "pi_t": pi,
        "c_t": np.where(last, 0.0, cuts),
    }


for _name in losses.__all__:
    _value = getattr(losses, _name)
    if inspect.isfunction(_value):
        _statics = sorted(_STATIC.intersection(inspect.signature(_value).parameters))
        _value = jax.jit(_value, static_argnames=_statics)
    globals()[_name] = _value
