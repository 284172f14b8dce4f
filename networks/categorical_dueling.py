"""Dueling network with a categorical distribution of the return for each action.

Dueling: Wang et al. 2016. Categorical: Bellemare et al. 2017 (C51). Both together: Hessel et al.
2018 (Rainbow), "The Integrated Agent". `B` denotes a batch, `F` features, `A` the number of
actions, `N` the number of atoms.
"""

from collections.abc import Sequence
from typing import Any

import chex
import haiku as hk
import jax
import jax.numpy as jnp
from dm_env import specs

from .base import FeedForwardNetwork, make_feed_forward_network
from .torsos import DQN_CONVOLUTIONS, Convolutions, MakeTorso, choose_torso


class CategoricalDuelingHead(hk.Module):
    """Features `[B, F]` -> logits `[B, A, N]`: V + A - mean_a A, atom by atom.

    The value stream and the advantage stream have one hidden layer with ReLU each (Wang et al.,
    section 4.2). With one atom the logits are action values, as in Wang et al. 2016, eq. 9.
    """

    def __init__(
        self, num_actions: int, num_atoms: int, hidden_size: int = 512, name: str | None = None
    ):
        super().__init__(name=name)
        self._num_actions, self._num_atoms = num_actions, num_atoms
        self._value_hidden = hk.Linear(hidden_size, name="value_hidden")
        self._value_output = hk.Linear(num_atoms, name="value_output")
        self._advantage_hidden = hk.Linear(hidden_size, name="advantage_hidden")
        self._advantage_output = hk.Linear(num_actions * num_atoms, name="advantage_output")

    def __call__(self, features: jax.Array) -> jax.Array:
        """See the class."""
        chex.assert_rank(features, 2)
        value = self._value_output(jax.nn.relu(self._value_hidden(features)))
        advantage = self._advantage_output(jax.nn.relu(self._advantage_hidden(features)))
        advantage = advantage.reshape(-1, self._num_actions, self._num_atoms)
        return value[:, None] + advantage - jnp.mean(advantage, axis=1, keepdims=True)


class CategoricalDuelingModule(hk.Module):
    """Observations `[B, ...]` -> logits `[B, A, N]`: a torso with ReLU, then the dueling head."""

    def __init__(
        self,
        torso: MakeTorso,
        *,
        num_actions: int,
        num_atoms: int = 51,
        hidden_size: int = 512,
        name: str | None = None,
    ):
        """Makes the module.

        Args:
          torso: makes the torso: observations `[B, ...]` -> float features `[B, F]`.
          num_actions: A >= 1.
          num_atoms: N >= 1; 51 in C51, 1 for plain action values.
          hidden_size: units of the hidden layer of each stream.
          name: Haiku's name of the module.
        """
        super().__init__(name=name)
        self._torso = torso()
        self._head = CategoricalDuelingHead(num_actions, num_atoms, hidden_size, name="head")

    def __call__(self, observations: jax.Array) -> jax.Array:
        """See the class."""
        return self._head(self._torso(observations))


def make_categorical_dueling_network(
    observation: specs.Array,
    *,
    convolutions: Convolutions | None = DQN_CONVOLUTIONS,
    vector_sizes: Sequence[int] = (),
    **sizes: Any,
) -> FeedForwardNetwork:
    """The network for one kind of observation, with the papers' sizes for images.

    Args:
      observation: spec of one observation: uint8 image `[height, width, channels]` or float array.
      convolutions: (channels, kernel, stride) of each, for images; None: by size.
      vector_sizes: hidden layers of the torso, for float arrays.
      **sizes: arguments of `CategoricalDuelingModule`.

    Returns:
      Observations `[B, ...]` -> logits `[B, A, N]`.

    Raises:
      ValueError: an unsupported observation.
    """
    torso = choose_torso(observation, convolutions, vector_sizes, jax.nn.relu)
    return make_feed_forward_network(lambda: CategoricalDuelingModule(torso, **sizes), observation)
