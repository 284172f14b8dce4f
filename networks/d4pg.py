"""D4PG's networks: a torso for images, a bounded policy, a critic of states and actions.

Barth-Maron et al. 2018, figure "Architectural variants"; the sizes are those of the same authors'
Control Suite paper (Tassa et al. 2018). `B` denotes the batch, `F` features of an observation, `A`
the dimensions of an action.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from .base import FeedForwardNetwork, make_feed_forward_network
from .convolution import Convolution
from .torsos import Convolutions, check_observation, choose_convolutions, is_image

# Control Suite paper: (channels, kernel, stride) of each convolution, for images.
D4PG_CONVOLUTIONS = ((32, 3, 2), (32, 3, 1))

ActionInput = Literal["second_layer", "concatenated"]
ACTION_INPUTS = ("second_layer", "concatenated")


class D4PGNetworks(NamedTuple):
    """Three networks; the torso's features are inputs of the other two.

    The agent trains the torso with the critic's loss only.

    Attributes:
      torso: observations `[B, ...]` -> features `[B, F]`.
      policy: features `[B, F]` -> actions `[B, ...]` within the spec's bounds.
      critic: features `[B, F]`, actions `[B, ...]` -> outputs `[B, P]` for a `CriticHead`.
    """

    torso: FeedForwardNetwork
    policy: FeedForwardNetwork
    critic: FeedForwardNetwork


class PixelTorso(hk.Module):
    """uint8 images `[B, height, width, channels]` -> features `[B, F]`.

    Scaled to [0, 1], then valid convolutions with ELU, then a linear layer, LayerNorm and tanh.
    """

    def __init__(
        self,
        convolutions: Convolutions = D4PG_CONVOLUTIONS,
        num_features: int = 50,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self._convolutions = [
            Convolution(channels, kernel, stride) for channels, kernel, stride in convolutions
        ]
        self._output = _NormedLayer(num_features, name="output")

    def __call__(self, images: jax.Array) -> jax.Array:
        """See the class."""
        features = images.astype(jnp.float32) / 255.0
        for convolution in self._convolutions:
            features = jax.nn.elu(convolution(features))
        return self._output(hk.Flatten()(features))


class PolicyModule(hk.Module):
    """Features `[B, F]` -> actions `[B, ...]`: ReLU layers, then tanh, mapped onto the bounds.

    With `inverting_gradients`, the derivative of that tanh is the one of
    `tanh_with_inverted_gradients`.
    """

    def __init__(
        self,
        actions: specs.BoundedArray,
        sizes: Sequence[int] = (300, 200),
        layer_norm: bool = False,
        inverting_gradients: bool = False,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self._actions = actions
        self._layers = _hidden_layers(sizes, layer_norm)
        self._squash = tanh_with_inverted_gradients if inverting_gradients else jnp.tanh
        # Near zero: initial actions are in the middle of the bounds, where tanh is steep. Our
        # choice.
        self._output = hk.Linear(
            int(np.prod(actions.shape)),
            w_init=hk.initializers.VarianceScaling(1e-4),
            name="output",
        )

    def __call__(self, features: jax.Array) -> jax.Array:
        """See the class."""
        for layer in self._layers:
            features = _activated(layer, features)
        unit: jax.Array = self._squash(self._output(features))
        middle, half = map(jnp.asarray, middle_and_half(self._actions))
        return middle + half * unit.reshape(-1, *self._actions.shape)


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
        sizes: Sequence[int] = (400, 300),
        layer_norm: bool = False,
        action_input: ActionInput = "second_layer",
        name: str | None = None,
    ):
        super().__init__(name=name)
        self._actions = actions
        self._layers = _hidden_layers(sizes, layer_norm)
        self._action = None
        if action_input == "second_layer":
            self._action = hk.Linear(sizes[1], with_bias=False, name="action")
        self._output = hk.Linear(num_outputs, name="output")

    def __call__(self, features: jax.Array, actions: jax.Array) -> jax.Array:
        """See the class."""
        middle, half = middle_and_half(self._actions)
        unit = hk.Flatten()((actions - middle) / half)
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
    inverting_gradients: bool = False,
    action_input: ActionInput = "second_layer",
    convolutions: Convolutions | None = D4PG_CONVOLUTIONS,
    pixel_features: int = 50,
) -> D4PGNetworks:
    """D4PG's networks for one kind of observation; the torso of vectors only flattens them.

    Args:
      observation: spec of one observation: uint8 image `[height, width, channels]` or float array.
      actions: spec of one action, finitely bounded.
      num_outputs: P, the `num_outputs` of the critic's head.
      policy_sizes: units of the policy's hidden layers, at least one layer.
      critic_sizes: units of the critic's, at least two layers for "second_layer".
      layer_norm: whether the first layers have LayerNorm and tanh in place of ReLU.
      inverting_gradients: whether a policy at the bounds of the actions can return, see
        `tanh_with_inverted_gradients`.
      action_input: where the critic takes the action, see `CriticModule`.
      convolutions: (channels, kernel, stride) of each, for images; None: by size.
      pixel_features: units of the layer after the convolutions.

    Raises:
      ValueError: an unsupported observation.
    """
    check_observation(observation, convolutions)
    if is_image(observation):
        if convolutions is None:
            convolutions = choose_convolutions(observation.shape)
        torso = make_feed_forward_network(
            lambda: PixelTorso(convolutions, pixel_features), observation
        )
        features = specs.Array((pixel_features,), np.float32)
    else:
        torso = make_feed_forward_network(lambda: _flattened, observation)
        features = specs.Array((int(np.prod(observation.shape)),), np.float32)
    policy = make_feed_forward_network(
        lambda: PolicyModule(actions, policy_sizes, layer_norm, inverting_gradients), features
    )
    critic = make_feed_forward_network(
        lambda: CriticModule(actions, num_outputs, critic_sizes, layer_norm, action_input),
        features,
        actions,
    )
    return D4PGNetworks(torso, policy, critic)


def middle_and_half(actions: specs.BoundedArray) -> tuple[np.ndarray, np.ndarray]:
    """Midpoint and half the range of an action spec's bounds, float32 arrays of its shape."""
    low = np.broadcast_to(actions.minimum, actions.shape).astype(np.float32)
    high = np.broadcast_to(actions.maximum, actions.shape).astype(np.float32)
    return low / 2 + high / 2, high / 2 - low / 2


@jax.custom_vjp
def tanh_with_inverted_gradients(x: jax.Array) -> jax.Array:
    """tanh, with a derivative that leads back from the bounds (Hausknecht and Stone 2016).

    For y = tanh(x) and a loss to be descended, the derivative is 1 - y where the loss asks for a
    larger y, and 1 + y where it asks for a smaller one: it vanishes towards the nearer bound only.
    That of tanh, (1 - y) (1 + y), vanishes in both directions. They invert the gradients of linear
    outputs; tanh keeps ours within the bounds before the first update too.

    Args:
      x: any shape, float.

    Returns:
      tanh(x), of the same shape.
    """
    return jnp.tanh(x)


def _squash_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = jnp.tanh(x)
    return y, y


def _squash_backward(y: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    return (cotangent * jnp.where(cotangent < 0, 1 - y, 1 + y),)


tanh_with_inverted_gradients.defvjp(_squash_forward, _squash_backward)


class _NormedLayer(hk.Module):
    """A linear layer, LayerNorm, tanh: `[B, D] -> [B, size]`, in [-1, 1]."""

    def __init__(self, size: int, name: str):
        super().__init__(name=name)
        self._linear = hk.Linear(size)
        self._norm = hk.LayerNorm(axis=-1, create_scale=True, create_offset=True)

    def __call__(self, inputs: jax.Array) -> jax.Array:
        return jnp.tanh(self._norm(self._linear(inputs)))


def _hidden_layers(sizes: Sequence[int], layer_norm: bool) -> list[hk.Module]:
    """Linear layers "hidden_1", "hidden_2", ...; the first has LayerNorm if `layer_norm`."""
    kinds = [_NormedLayer if layer_norm else hk.Linear, *(hk.Linear for _ in sizes[1:])]
    return [
        kind(size, name=f"hidden_{number}")
        for number, (kind, size) in enumerate(zip(kinds, sizes, strict=True), start=1)
    ]


def _activated(layer: hk.Module, inputs: jax.Array) -> jax.Array:
    """The layer's outputs, with ReLU if the layer has no activation."""
    outputs: Any = layer(inputs)
    return outputs if isinstance(layer, _NormedLayer) else jax.nn.relu(outputs)


def _flattened(vectors: jax.Array) -> jax.Array:
    return vectors.astype(jnp.float32).reshape(vectors.shape[0], -1)
