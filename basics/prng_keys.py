"""PRNG keys as their data, since NumPy has none."""

from typing import Any

import jax


def without_keys(state: Any) -> Any:
    """A pytree whose PRNG keys are replaced by their data: NumPy has no PRNG keys."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, state)


def with_keys(template: Any, state: Any) -> Any:
    """The inverse of `without_keys`.

    Args:
      template: a pytree like the result, or its shapes and dtypes.
      state: output of `without_keys`.
    """
    return jax.tree.map(_with_key, template, state)


def _with_key(template: Any, leaf: Any) -> Any:
    if _is_key(template) and not _is_key(leaf):
        return jax.random.wrap_key_data(jax.numpy.asarray(leaf))
    return leaf


def _is_key(x: Any) -> bool:
    return bool(jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key))
