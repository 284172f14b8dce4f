"""Dueling streams (Wang et al. 2016), a categorical distribution for each action (C51).

Both together: Hessel et al. 2018, "The Integrated Agent". `B` denotes a batch, `F` features, `A`
the number of actions, `N` of atoms.
"""

import haiku as hk
import jax
import jax.numpy as jnp
from dm_env import specs

from retrax.networks import FeedForwardNetwork, MakeTorso, choose_torso, make_feed_forward_network
from retrax.networks.torsos import DQN_CONVOLUTIONS


class CategoricalDuelingModule(hk.Module):
    """Observations `[B, ...]` -> logits `[B, A, N]`: V + A - mean_a A, atom by atom.

    A torso with ReLU, then two streams of one hidden layer (Wang et al., section 4.2).
    """

    def __init__(self, torso: MakeTorso, num_actions: int, num_atoms: int, hidden_size: int):
        super().__init__()
        self._torso, self._hidden_size = torso(), hidden_size
        self._num_actions, self._num_atoms = num_actions, num_atoms

    def __call__(self, observations: jax.Array) -> jax.Array:
        """See the class."""
        features = self._torso(observations)
        value = self._stream(features, 1, "value")
        advantage = self._stream(features, self._num_actions, "advantage")
        return value + advantage - jnp.mean(advantage, axis=1, keepdims=True)

    def _stream(self, features: jax.Array, count: int, name: str) -> jax.Array:
        """`[B, F] -> [B, count, N]`."""
        hidden = jax.nn.relu(hk.Linear(self._hidden_size, name=f"{name}_hidden")(features))
        outputs = hk.Linear(count * self._num_atoms, name=f"{name}_output")(hidden)
        return outputs.reshape(-1, count, self._num_atoms)


def make_network(
    observation: specs.Array, *, num_actions: int, num_atoms: int, hidden_size: int
) -> FeedForwardNetwork:
    """The network for one kind of observation, with DQN's convolutions for images."""
    torso = choose_torso(observation, DQN_CONVOLUTIONS, (hidden_size,), jax.nn.relu)
    return make_feed_forward_network(
        lambda: CategoricalDuelingModule(torso, num_actions, num_atoms, hidden_size), observation
    )
