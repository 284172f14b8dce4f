"""ACER's networks (Wang et al. 2017, sections 4 and 6)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
from dm_env import specs
from jax import Array

from .base import (
    FeedForwardNetwork,
    RecurrentNetwork,
    make_feed_forward_network,
    make_recurrent_network,
)
from .memory import Memory
from .torsos import DQN_CONVOLUTIONS, Convolutions, MakeTorso, choose_torso, legal_actions

# Scale of the policy head's initial weights: initial policies are nearly uniform, means near 0.
_POLICY_SCALE = 0.01


class CategoricalOutput(NamedTuple):
    """Outputs of the network for each of T observations, with A discrete actions."""

    policy: Array  # `[T, A]`, probabilities; exactly 0 for illegal actions
    q: Array  # `[T, A]`, action values


class GaussianOutput(NamedTuple):
    """Outputs of the network for each of T observations, with actions `[d]`."""

    policy: Array  # `[T, d]`, the mean, in [-1, 1]
    value: Array  # `[T]`, state values
    features: Array  # `[T, F]`, inputs of the advantage network, or of the last layers of Q's own


class _Stream(hk.Module):
    """Torso, hidden layer and, if its size is not 0, memory: `[T, ...] -> [T, D]`."""

    def __init__(
        self,
        torso: MakeTorso,
        hidden_size: int,
        memory_size: int,
        w_init: hk.initializers.Initializer | None,
        name: str,
    ):
        super().__init__(name=name)
        self._torso = torso()
        self._hidden = hk.Linear(hidden_size, w_init=w_init, name="hidden")
        self._memory = Memory(memory_size, name="memory") if memory_size else None

    def initial_state(self) -> Any:
        return self._memory.initial_state() if self._memory else ()

    def __call__(self, observations: Array, is_first: Array, state: Any) -> tuple[Array, Any]:
        features = jax.nn.relu(self._hidden(self._torso(observations)))
        if self._memory is None:
            return features, state
        return self._memory(features, is_first, state)


class AcerModule(hk.Module):
    """Features with two heads: the policy, and values of actions or of the state.

    For discrete actions the heads are a softmax policy over the legal ones and Q
    (`CategoricalOutput`). For continuous actions they are the mean of a Gaussian, with a tanh, and
    V (`GaussianOutput`); the layers that read the action are `AdvantageModule`.
    """

    def __init__(
        self,
        torso: MakeTorso,
        actions: specs.Array,
        *,
        hidden_size: int = 512,
        memory_size: int = 0,
        shared: bool = True,
        separate_q: bool = False,
        w_init: hk.initializers.Initializer | None = None,
        masked: bool = False,
        name: str | None = None,
    ):
        """Makes the module.

        Args:
          torso: makes a torso, once for each stream: observations `[T, ...]` -> float features
            `[T, D]`.
          actions: a `DiscreteArray`, or an array `[d]`.
          hidden_size: units of the layer that follows the torso.
          memory_size: units of an LSTM after that layer; 0 for none.
          shared: whether both heads share one stream of layers; otherwise each has its own.
          separate_q: continuous actions only: whether `features` come from one more stream, which
            neither the policy nor V uses; otherwise they are the inputs of V's head.
          w_init: of the hidden layers; None: Haiku's.
          masked: whether observations tell the legal actions, see `legal_actions`.
          name: Haiku's name of the module.
        """
        super().__init__(name=name)
        self._actions, self._masked = actions, masked
        parts = torso, hidden_size, memory_size, w_init
        names = ["shared"] if shared else ["policy", "value"]
        self._value_stream = len(names) - 1
        if separate_q and not isinstance(actions, specs.DiscreteArray):
            names.append("q")
        self._streams = [_Stream(*parts, name=f"{name}_stream") for name in names]

    def initial_state(self) -> Any:
        """One state for each stream."""
        return tuple(stream.initial_state() for stream in self._streams)

    def __call__(
        self, observations: Array, is_first: Array, state: Any
    ) -> tuple[CategoricalOutput | GaussianOutput, Any]:
        """Observations `[T, ...]`, `is_first` `[T]`, initial state -> outputs, final state."""
        read = [
            stream(observations, is_first, initial)
            for stream, initial in zip(self._streams, state, strict=True)
        ]
        features = [features for features, _ in read]
        heads = self._heads(observations, features[0], features[self._value_stream], features[-1])
        return heads, tuple(final for _, final in read)

    def _heads(
        self, observations: Array, of_policy: Array, of_value: Array, of_q: Array
    ) -> CategoricalOutput | GaussianOutput:
        small = hk.initializers.VarianceScaling(_POLICY_SCALE)
        if isinstance(self._actions, specs.DiscreteArray):
            num_actions = int(self._actions.num_values)
            logits = hk.Linear(num_actions, w_init=small, name="policy")(of_policy)
            q = hk.Linear(num_actions, name="q")(of_value)
            legal = legal_actions(observations, num_actions) if self._masked else None
            return CategoricalOutput(jax.nn.softmax(logits, where=legal), q)
        (size,) = self._actions.shape
        mean = jnp.tanh(hk.Linear(size, w_init=small, name="policy")(of_policy))
        value = hk.Linear(1, name="value")(of_value)
        return GaussianOutput(mean, value[..., 0], of_q)


class AdvantageModule(hk.Module):
    """The advantage network of stochastic dueling: features `[F]`, action `[d]` -> A(x, a) `[]`.

    Without stochastic dueling these are the last layers of Q. Leading axes are batch axes.
    """

    def __init__(self, size: int, name: str | None = None):
        super().__init__(name=name)
        self._size = size

    def __call__(self, features: Array, action: Array) -> Array:
        """`[..., F]` and `[..., d]` -> `[...]`."""
        inputs = jnp.concatenate([features, action], axis=-1)
        hidden = jax.nn.relu(hk.Linear(self._size, name="hidden")(inputs))
        return hk.Linear(1, name="output")(hidden)[..., 0]


def make_acer_network(
    observation: specs.Array,
    actions: specs.Array,
    *,
    convolutions: Convolutions | None = DQN_CONVOLUTIONS,
    vector_sizes: Sequence[int] = (),
    orthogonal_gain: float | None = None,
    torso: MakeTorso | None = None,
    **sizes: Any,
) -> RecurrentNetwork:
    """ACER's network. Outputs: `CategoricalOutput` (discrete), `GaussianOutput` (continuous).

    `observation`, `convolutions`, `vector_sizes` and `torso` decide on the torso, and are refused,
    as in `choose_torso`. `actions` is the spec of one action: a `DiscreteArray`, or an array `[d]`.
    `sizes` are other arguments of `AcerModule`, whose defaults are the paper's.

    Convolutions and the hidden layer start as orthogonal matrices times `orthogonal_gain`, so that
    sqrt(2) keeps the size of features through ReLU; None: Haiku's weights, of deviation
    1 / sqrt(inputs), which shrink it.
    """
    init = None if orthogonal_gain is None else hk.initializers.Orthogonal(orthogonal_gain)
    chosen = choose_torso(observation, convolutions, vector_sizes, jax.nn.relu, init, torso)
    return make_recurrent_network(
        lambda: AcerModule(chosen, actions, w_init=init, **sizes), observation
    )


def make_advantage_network(features: Any, actions: specs.Array, size: int) -> FeedForwardNetwork:
    """The advantage network. Its inputs are features of another network, and an action.

    Args:
      features: `[F]`, any object with shape and dtype.
      actions: spec of one action `[d]`.
      size: hidden units.
    """
    return make_feed_forward_network(lambda: AdvantageModule(size), features, actions)
