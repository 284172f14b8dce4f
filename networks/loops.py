"""Networks within compiled loops on CPUs, where XLA's usual form of two operations is slow.

Convolutions are 15 to 60 times as slow there as outside. The gradient of a layer's weights, the
product of inputs and output gradients over a batch, is four times as slow as its transpose.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import haiku as hk
import jax

_WITHIN = contextvars.ContextVar("within_loops", default=False)


@contextlib.contextmanager
def within_loops() -> Iterator[None]:
    """On CPUs, networks that are traced in the block, or the function, have forms for loops."""
    token = _WITHIN.set(True)
    try:
        yield
    finally:
        _WITHIN.reset(token)


def are_for_loops() -> bool:
    """Whether networks that are traced now run within loops on a CPU."""
    return _WITHIN.get() and jax.default_backend() == "cpu"


def weights_for_loops() -> contextlib.AbstractContextManager[Any]:
    """Within Haiku's transform: matrices have gradients for loops, where that is wanted."""
    return hk.custom_getter(_getter) if are_for_loops() else contextlib.nullcontext()


@jax.custom_jvp
def with_transposed_gradient(matrix: jax.Array) -> jax.Array:
    """The same matrix; its gradient is the transpose of its transpose's gradient."""
    return matrix


@with_transposed_gradient.defjvp
def _derivative(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    ((matrix,), (tangent,)) = primals, tangents
    # Without the barrier, XLA turns one form into the other.
    return matrix, jax.lax.optimization_barrier(tangent.T).T


def _getter(next_getter: Any, value: Any, context: Any) -> Any:
    del context
    value = next_getter(value)
    return with_transposed_gradient(value) if value.ndim == 2 else value
