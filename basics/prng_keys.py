"""PRNG keys as their data, since NumPy has none."""

from typing import Any

import jax


def without_keys(state: Any) -> Any:
    """A pytree whose PRNG keys are replaced by their data."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, state)


def with_keys(template: Any, state: Any) -> Any:
    """The inverse of `without_keys`; the template is like the result, or its shapes and dtypes."""

    def with_key(like: Any, leaf: Any) -> Any:
        if not is_key(like) or is_key(leaf):
            return leaf
        kinds: list[Any] = []  # `key_impl` takes no shapes
        jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), like)
        return jax.random.wrap_key_data(jax.numpy.asarray(leaf), impl=kinds[0])

    return jax.tree.map(with_key, template, state)


def is_key(x: Any) -> bool:
    """Whether an array, or its shape and dtype, is of PRNG keys."""
    return bool(jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key))
