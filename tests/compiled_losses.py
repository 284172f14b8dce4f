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


def _compiled(function):
    static = _STATIC.intersection(inspect.signature(function).parameters)
    return jax.jit(function, static_argnames=sorted(static))


for _name in losses.__all__:
    _value = getattr(losses, _name)
    globals()[_name] = _compiled(_value) if inspect.isfunction(_value) else _value
