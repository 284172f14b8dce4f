"""D4PG's networks: a torso for images, a bounded policy, a critic of states and actions.

Barth-Maron et al. 2018, figure "Architectural variants"; sizes from the same authors' Control Suite
paper (Tassa et al. 2018). `B` denotes the batch, `F` features, `P` the critic's outputs.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from .base import FeedForwardNetwork, make_feed_forward_network
from .torsos import Convolutions, ImageTorso, VectorTorso, choose_convolutions, is_image

# Control Suite paper: (channels, kernel, stride) of each convolution, for images.
D4PG_CONVOLUTIONS = ((32, 3, 2), (32, 3, 1))

ActionInput = Literal["second_layer", "concatenated"]
_layer_norm = functools.partial(hk.LayerNorm, axis=-1, create_scale=True, create_offset=True)


class D4PGNetworks(NamedTuple):
    """Three networks; the torso's features are inputs of the other two.

    The agent trains the torso with the critic's loss only.
    """

    torso: FeedForwardNetwork  # observations `[B, ...]` -> features `[B, F]`
    policy: FeedForwardNetwork  # features `[B, F]` -> outputs `[B, ...]` of the shape of actions
    critic: FeedForwardNetwork  # features, actions `[B, ...]` -> `[B, P]` for a `CriticHead`
    # Outputs of the policy -> actions within the spec's bounds.
    squash: Callable[[jax.Array], jax.Array] = lambda outputs: outputs

    def action(self, policy: Any, features: jax.Array) -> jax.Array:
        """Features `[B, F]` -> actions `[B, ...]`, with parameters `policy`."""
        return self.squash(self.policy.apply(policy, features))


class PixelTorso(ImageTorso):
    """An `ImageTorso` with ELU, then a linear layer, LayerNorm and tanh: features `[B, F]`."""

    def __init__(self, convolutions: Convolutions, num_features: int, name: str | None = None):
        super().__init__(convolutions, jax.nn.elu, name=name)
        self._output = _NormedLayer(num_features, name="output")

    def __call__(self, images: jax.Array) -> jax.Array:
        """See the class."""
        return self._output(super().__call__(images))


class PolicyModule(hk.Module):
    """Features `[B, F]` -> outputs `[B, ...]` before tanh, of the shape of actions: ReLU layers."""

    def __init__(
        self,
        actions: specs.BoundedArray,
        sizes: Sequence[int],
        layer_norm: bool,
        residual: bool,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self._shape = actions.shape
        self._layers = _hidden_layers(sizes, layer_norm, residual)
        # Near zero (ours): initial actions are in the middle of the bounds, where tanh is steep.
        self._output = hk.Linear(
            int(np.prod(actions.shape)), w_init=hk.initializers.VarianceScaling(1e-4), name="output"
        )

    def __call__(self, features: jax.Array) -> jax.Array:
        """See the class."""
        for layer in self._layers:
            features = _activated(layer, features)
        return self._output(features).reshape(-1, *self._shape)


class CriticModule(hk.Module):
    """Features `[B, F]` and actions `[B, ...]` -> outputs `[B, P]`.

    Actions are scaled to [-1, 1] (our choice; it has no effect in the control suite).
    "second_layer": a linear layer of the action is added to the second layer before its ReLU. If it
    were added after the ReLU, a scalar critic would be linear in the action, and its best action
    the same in every state. "concatenated": the action is concatenated to the features as input of
    the first layer.
    """

    def __init__(
        self,
        actions: specs.BoundedArray,
        num_outputs: int,
        sizes: Sequence[int],
        layer_norm: bool,
        action_input: ActionInput,
        residual: bool,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self._actions = actions
        self._layers = _hidden_layers(sizes, layer_norm, residual)
        self._action = None
        if action_input == "second_layer":
            self._action = hk.Linear(sizes[1], with_bias=False, name="action")
        self._output = hk.Linear(num_outputs, name="output")

    def __call__(self, features: jax.Array, actions: jax.Array) -> jax.Array:
        """See the class."""
        middle, half = middle_and_half(self._actions)
        unit = ((actions - middle) / half).reshape(len(features), -1)
        if self._action is None:
            features = jnp.concatenate([features, unit], axis=-1)
        for number, layer in enumerate(self._layers):
            if number == 1 and self._action is not None:
                features = jax.nn.relu(layer(features) + self._action(unit))
            else:
                features = _activated(layer, features)
        return self._output(features)


def make_d4pg_networks(
    observation: specs.Array,
    actions: specs.BoundedArray,
    *,
    num_outputs: int,
    policy_sizes: Sequence[int] = (300, 200),
    critic_sizes: Sequence[int] = (400, 300),
    layer_norm: bool = False,
    residual: bool = False,
    action_input: ActionInput = "second_layer",
    convolutions: Convolutions | None = D4PG_CONVOLUTIONS,
    pixel_features: int = 50,
) -> D4PGNetworks:
    """D4PG's networks for one kind of observation; the torso of vectors only flattens them.

    Args:
      observation: spec of one observation, see `choose_torso`.
      actions: spec of one action, finitely bounded.
      num_outputs: P, the `num_outputs` of the critic's head.
      policy_sizes: units of the policy's hidden layers, at least one layer.
      critic_sizes: units of the critic's, at least two layers for "second_layer".
      layer_norm: whether the first layers have LayerNorm and tanh in place of ReLU.
      residual: SimBa's layers: linear, then blocks of the same size, then LayerNorm.
      action_input: where the critic takes the action, see `CriticModule`.
      convolutions: for images, see `choose_torso`.
      pixel_features: units of the layer after the convolutions.
    """
    chosen = choose_convolutions(observation, convolutions)
    if is_image(observation):
        torso = make_feed_forward_network(lambda: PixelTorso(chosen, pixel_features), observation)
        size = pixel_features
    else:
        torso = make_feed_forward_network(lambda: VectorTorso(()), observation)
        size = int(np.prod(observation.shape))
    features = specs.Array((size,), np.float32)
    policy = make_feed_forward_network(
        lambda: PolicyModule(actions, policy_sizes, layer_norm, residual), features
    )
    critic = make_feed_forward_network(
        lambda: CriticModule(
            actions, num_outputs, critic_sizes, layer_norm, action_input, residual
        ),
        features,
        actions,
    )

    def squash(outputs: jax.Array) -> jax.Array:
        """tanh, mapped onto the bounds of the actions."""
        middle, half = map(jnp.asarray, middle_and_half(actions))
        return middle + half * jnp.tanh(outputs)

    return D4PGNetworks(torso, policy, critic, squash)


def middle_and_half(actions: specs.BoundedArray) -> tuple[np.ndarray, np.ndarray]:
    """Midpoint and half the range of an action spec's bounds, float32 arrays of its shape."""
    low = np.broadcast_to(actions.minimum, actions.shape).astype(np.float32)
    high = np.broadcast_to(actions.maximum, actions.shape).astype(np.float32)
    return low / 2 + high / 2, high / 2 - low / 2


class _NormedLayer(hk.Module):
    """A linear layer, LayerNorm, tanh: `[B, D] -> [B, size]`, in [-1, 1]."""

    def __init__(self, size: int, name: str):
        super().__init__(name=name)
        self._linear = hk.Linear(size)
        self._norm = _layer_norm()

    def __call__(self, inputs: jax.Array) -> jax.Array:
        return jnp.tanh(self._norm(self._linear(inputs)))


class _ResidualBlock(hk.Module):
    """x + W relu(V LayerNorm(x)), with 4 D units: `[B, D] -> [B, D]` (SimBa, section 4.2)."""

    def __call__(self, inputs: jax.Array) -> jax.Array:
        size = inputs.shape[-1]
        units = jax.nn.relu(hk.Linear(4 * size, name="inner")(_layer_norm()(inputs)))
        return inputs + hk.Linear(size, name="outer")(units)


class _Embedding(hk.Linear):
    """A linear layer that no activation follows."""


def _hidden_layers(sizes: Sequence[int], layer_norm: bool, residual: bool) -> list[hk.Module]:
    """Layers "hidden_1", "hidden_2", ...; the first has LayerNorm if `layer_norm`."""
    first = _NormedLayer if layer_norm else _Embedding if residual else hk.Linear
    layers: list[hk.Module] = [first(sizes[0], name="hidden_1")]
    for number, size in enumerate(sizes[1:], start=2):
        name = f"hidden_{number}"
        layers.append(_ResidualBlock(name=name) if residual else hk.Linear(size, name=name))
    return [*layers, _layer_norm()] if residual else layers


def _activated(layer: hk.Module, inputs: jax.Array) -> jax.Array:
    """The layer's outputs, with ReLU behind an `hk.Linear`."""
    outputs: Any = layer(inputs)
    return jax.nn.relu(outputs) if type(layer) is hk.Linear else outputs
