"""Converts Haiku modules to pure functions. `hk.transform` is called in this module only."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
from dm_env import specs
from jax import Array

_WITHIN = contextvars.ContextVar("within_loops", default=False)


@contextlib.contextmanager
def within_loops() -> Iterator[None]:
    """On CPUs, networks that are traced in the block, or the function, have forms for loops.

    XLA's usual convolutions are 15 to 60 times as slow in a compiled loop as outside, and the
    gradient of a layer's weights, a product over a batch, is four times as slow as its transpose.
    """
    token = _WITHIN.set(True)
    try:
        yield
    finally:
        _WITHIN.reset(token)


def are_for_loops() -> bool:
    """Whether networks that are traced now run within loops on a CPU."""
    return _WITHIN.get() and jax.default_backend() == "cpu"


@jax.custom_jvp
def with_transposed_gradient(matrix: Array) -> Array:
    """The same matrix; its gradient is the transpose of its transpose's gradient."""
    return matrix


@with_transposed_gradient.defjvp
def _derivative(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    ((matrix,), (tangent,)) = primals, tangents
    # Without the barrier, XLA turns one form into the other.
    return matrix, jax.lax.optimization_barrier(tangent.T).T


def _getter(next_getter: Any, value: Any, context: Any) -> Any:
    value = next_getter(value)
    return with_transposed_gradient(value) if value.ndim == 2 else value


Params = Any
State = Any


class RecurrentNetwork(NamedTuple):
    """A recurrent network as pure functions, unbatched (`jax.vmap` batches them).

    Attributes:
      init: `key -> Params`.
      initial_state: `() -> State`, the state before the first observation of an episode.
      unroll: `(Params, observations [T, ...], is_first [T], State) -> (outputs [T, ...], State)`;
        the state is reset before each step where `is_first` is true.
      step: `(Params, observation, is_first [], State) -> (output, State)`, an unroll of one step.
    """

    init: Callable[[Array], Params]
    initial_state: Callable[[], State]
    unroll: Callable[[Params, Any, Array, State], tuple[Any, State]]
    step: Callable[[Params, Any, Array, State], tuple[Any, State]]


def make_recurrent_network(make_module: Callable[[], Any], observation: Any) -> RecurrentNetwork:
    """Converts a recurrent module, made inside Haiku's transform, to pure functions.

    `module(observations [T, ...], is_first [T], state)` returns outputs and the last state, and
    `module.initial_state()` is the state before an episode's first observation, unbatched.
    `observation` is the spec of one observation, or a pytree of specs.
    """
    unroll = _transformed(make_module)
    start = hk.transform(lambda: make_module().initial_state())

    def initial_state() -> State:
        return start.apply({}, None)

    def init(key: Array) -> Params:
        observations = jax.tree.map(lambda x: jnp.zeros((1, *x.shape), x.dtype), observation)
        return unroll.init(key, observations, jnp.ones((1,), bool), initial_state())

    def step(params: Params, observation: Any, is_first: Array, state: State) -> tuple[Any, State]:
        observations = jax.tree.map(lambda x: x[None], observation)
        outputs, state = unroll.apply(params, observations, is_first[None], state)
        return jax.tree.map(lambda output: output[0], outputs), state

    return RecurrentNetwork(init, initial_state, unroll.apply, step)


class FeedForwardNetwork(NamedTuple):
    """A network without memory as pure functions of batches `[B, ...]`."""

    init: Callable[[Array], Params]  # `key -> Params`
    apply: Callable[..., Any]  # `(Params, *inputs [B, ...]) -> outputs [B, ...]`


def make_feed_forward_network(
    make_module: Callable[[], Callable[..., Any]], *inputs: specs.Array
) -> FeedForwardNetwork:
    """Converts a module without memory, made inside Haiku's transform, to pure functions.

    `inputs` are the specs of its inputs, unbatched.
    """
    network = _transformed(make_module)

    def init(key: Array) -> Params:
        batches = [jnp.zeros((1, *spec.shape), spec.dtype) for spec in inputs]
        return network.init(key, *batches)

    return FeedForwardNetwork(init, network.apply)


def _transformed(make_module: Callable[[], Callable[..., Any]]) -> hk.Transformed:
    def apply(*inputs: Any) -> Any:
        # Matrices have gradients for loops, where that is wanted.
        with hk.custom_getter(_getter) if are_for_loops() else contextlib.nullcontext():
            return make_module()(*inputs)

    return hk.Transformed(*map(_advising, hk.without_apply_rng(hk.transform(apply))))


def _advising(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; where Haiku advises a transform with state or keys, its error says our rule."""

    def advising(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ValueError as error:
            if type(error).__name__ not in ("NonEmptyStateError", "MissingRNGError"):
                raise
            raise ValueError(
                "A network must have no state (as hk.BatchNorm has) and draw no random numbers (as "
                "hk.dropout does): hk.LayerNorm needs neither."
            ) from error

    return advising
