"""From Haiku modules to pure functions: the only place where `hk.transform` is called."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import haiku as hk
import jax
import jax.numpy as jnp
from dm_env import specs

Params = Any
State = Any


class RecurrentModule(Protocol):
    """A Haiku module that reads a sequence of observations."""

    def initial_state(self) -> State:
        """The state before the first observation of an episode, unbatched."""
        ...

    def __call__(
        self, observations: jax.Array, is_first: jax.Array, state: State
    ) -> tuple[Any, State]:
        """Reads observations `[T, ...]`; where `is_first` `[T]`, the state is reset before."""
        ...


class RecurrentNetwork(NamedTuple):
    """A recurrent network as pure functions, unbatched (`jax.vmap` batches them).

    Attributes:
      init: `key -> Params`.
      initial_state: `() -> State`, the state before the first observation of an episode.
      unroll: `(Params, observations [T, ...], is_first [T], State) -> (outputs [T, ...], State)`;
        the state is reset before each step where `is_first` is true.
      step: `(Params, observation, is_first [], State) -> (output, State)`: an unroll of one step.
    """

    init: Callable[[jax.Array], Params]
    initial_state: Callable[[], State]
    unroll: Callable[[Params, jax.Array, jax.Array, State], tuple[Any, State]]
    step: Callable[[Params, jax.Array, jax.Array, State], tuple[Any, State]]


class Network(NamedTuple):
    """A feed-forward network as pure functions.

    Attributes:
      init: `key -> Params`.
      apply: `(Params, *inputs) -> outputs`.
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[..., Any]


def make_network(make_module: Callable[[], Callable[..., Any]], *inputs: Any) -> Network:
    """Makes pure functions of a module without state.

    Args:
      make_module: builds the module; called inside of Haiku's transform.
      *inputs: what the module is called with: anything with shape and dtype.
    """
    network = hk.without_apply_rng(hk.transform(lambda *inputs: make_module()(*inputs)))

    def init(key: jax.Array) -> Params:
        return network.init(key, *(jnp.zeros(x.shape, x.dtype) for x in inputs))

    return Network(init, network.apply)


def make_recurrent_network(
    make_module: Callable[[], RecurrentModule], observation: specs.Array
) -> RecurrentNetwork:
    """Makes pure functions of a recurrent module.

    Args:
      make_module: builds the module; called inside of Haiku's transform.
      observation: the spec of one observation.
    """
    unroll = hk.without_apply_rng(hk.transform(lambda *inputs: make_module()(*inputs)))
    start = hk.without_apply_rng(hk.transform(lambda: make_module().initial_state()))

    def initial_state() -> State:
        return start.apply({})

    def init(key: jax.Array) -> Params:
        observations = jnp.zeros((1, *observation.shape), observation.dtype)
        return unroll.init(key, observations, jnp.ones((1,), bool), initial_state())

    def step(
        params: Params, observation: jax.Array, is_first: jax.Array, state: State
    ) -> tuple[Any, State]:
        outputs, state = unroll.apply(params, observation[None], is_first[None], state)
        return jax.tree.map(lambda output: output[0], outputs), state

    return RecurrentNetwork(init, initial_state, unroll.apply, step)
