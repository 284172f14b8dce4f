"""Agent57's networks: R2D2 value networks, and the networks of the intrinsic reward.

Badia et al. 2020 (Agent57), appendix E; Badia et al. 2020 (NGU), appendix H; Kapturowski et al.
2019 (R2D2), section 2.3. `T` denotes time or a batch, `A` the number of actions, `N` of arms.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs
from jax import Array

from .base import (
    FeedForwardNetwork,
    RecurrentNetwork,
    make_feed_forward_network,
    make_recurrent_network,
)
from .memory import Memory
from .torsos import DQN_CONVOLUTIONS, Convolutions, MakeTorso, choose_torso


class R2D2Inputs(NamedTuple):
    """Inputs of a value network at each of T steps."""

    observation: Any  # `[T, ...]`
    previous_action: Any  # int32 `[T]`, in 0 .. A - 1
    reward: Any  # float32 `[T]`, the extrinsic reward that arrived with the observation
    intrinsic_reward: Any  # float32 `[T]`, the intrinsic reward of the observation
    arm: Any  # int32 `[T]`, in 0 .. N - 1


class R2D2Module(hk.Module):
    """Torso, linear layer, LSTM with action, rewards and arm as further inputs, dueling heads.

    Q(x, a) = V(x) + A(x, a) - mean_b A(x, b), each head with one hidden layer. ReLU throughout.
    """

    def __init__(
        self,
        torso: MakeTorso,
        *,
        num_actions: int,
        num_arms: int,
        torso_size: int = 512,
        lstm_size: int = 512,
        head_size: int = 512,
        recurrent: bool = True,
        w_init: hk.initializers.Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self._num_actions, self._num_arms = num_actions, num_arms
        self._head_size = head_size
        self._torso = torso()
        self._linear = hk.Linear(torso_size, w_init=w_init, name="linear")
        self._memory = Memory(lstm_size, recurrent, name="memory")

    def initial_state(self) -> Any:
        """The LSTM's initial state, zeros."""
        return self._memory.initial_state()

    def __call__(self, inputs: R2D2Inputs, is_first: Array, state: Any) -> tuple[Array, Any]:
        """Inputs `[T, ...]`, `is_first` `[T]`, initial state -> values `[T, A]`, final state."""
        features = jax.nn.relu(self._linear(self._torso(inputs.observation)))
        others = (
            jax.nn.one_hot(inputs.previous_action, self._num_actions),
            inputs.reward[:, None],
            inputs.intrinsic_reward[:, None],
            jax.nn.one_hot(inputs.arm, self._num_arms),
        )
        read = jnp.concatenate([features, *others], axis=-1)
        outputs, state = self._memory(read, is_first, state)
        value = self._head(outputs, 1, "value")
        advantage = self._head(outputs, self._num_actions, "advantage")
        return value + advantage - jnp.mean(advantage, axis=-1, keepdims=True), state

    def _head(self, features: Array, size: int, name: str) -> Array:
        hidden = jax.nn.relu(hk.Linear(self._head_size, name=f"{name}_hidden")(features))
        return hk.Linear(size, name=f"{name}_output")(hidden)


class EmbeddingModule(hk.Module):
    """Observations `[T, ...]` -> `[T, size]`: a torso with ReLU, then a linear layer.

    Used for NGU's controllable state f and for both networks of random network distillation.
    """

    def __init__(self, torso: MakeTorso, size: int, name: str | None = None):
        super().__init__(name=name)
        self._torso = torso()
        self._output = hk.Linear(size, name="output")

    def __call__(self, observations: Array) -> Array:
        """See the class."""
        return self._output(self._torso(observations))


class ActionClassifier(hk.Module):
    """Two embeddings `[T, D]` -> logits `[T, A]` of the action between them. One hidden layer."""

    def __init__(self, num_actions: int, hidden_size: int = 128, name: str | None = None):
        super().__init__(name=name)
        self._hidden = hk.Linear(hidden_size, name="hidden")
        self._output = hk.Linear(num_actions, name="output")

    def __call__(self, before: Array, after: Array) -> Array:
        """See the class."""
        both = jnp.concatenate([before, after], axis=-1)
        return self._output(jax.nn.relu(self._hidden(both)))


class Agent57Networks(NamedTuple):
    """The networks of the agent, which keeps several sets of parameters for some of them."""

    value: RecurrentNetwork  # `R2D2Inputs` -> values `[T, A]`, for extrinsic and intrinsic ones
    embedding: FeedForwardNetwork  # observations `[B, ...]` -> controllable states `[B, D]`
    classifier: FeedForwardNetwork  # two embeddings `[B, D]` -> logits `[B, A]`
    novelty: FeedForwardNetwork  # observations `[B, ...]` -> `[B, E]`: random, and its predictor


def make_agent57_networks(
    observation: specs.Array,
    *,
    num_actions: int,
    convolutions: Convolutions | None = DQN_CONVOLUTIONS,
    vector_sizes: Sequence[int] = (),
    embedding_size: int = 32,
    classifier_size: int = 128,
    novelty_size: int = 128,
    orthogonal_gain: float | None = None,
    **sizes: Any,
) -> Agent57Networks:
    """Agent57's networks for one kind of observation.

    Every torso is chosen as in `choose_torso`. `embedding_size` is D, of the controllable state;
    `classifier_size` the hidden units of the action classifier; `novelty_size` is E, the outputs of
    random network distillation. `orthogonal_gain` is as in `make_acer_network`, for every torso and
    the values' linear layer. `sizes` are other arguments of `R2D2Module`.
    """
    init = None if orthogonal_gain is None else hk.initializers.Orthogonal(orthogonal_gain)
    torso = choose_torso(observation, convolutions, vector_sizes, jax.nn.relu, init)
    index, number = specs.Array((), np.int32), specs.Array((), np.float32)
    embedded = specs.Array((embedding_size,), np.float32)
    inputs = R2D2Inputs(observation, index, number, number, index)

    def embedding(size: int) -> FeedForwardNetwork:
        return make_feed_forward_network(lambda: EmbeddingModule(torso, size), observation)

    return Agent57Networks(
        value=make_recurrent_network(
            lambda: R2D2Module(torso, num_actions=num_actions, w_init=init, **sizes), inputs
        ),
        embedding=embedding(embedding_size),
        classifier=make_feed_forward_network(
            lambda: ActionClassifier(num_actions, classifier_size), embedded, embedded
        ),
        novelty=embedding(novelty_size),
    )
