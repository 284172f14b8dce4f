"""Torsos: from observations `[T, ...]` to features `[T, D]`, for images and for vectors."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from .base import make_feed_forward_network
from .convolution import Convolution

# Reactor, appendix, table of layers: (channels, kernel, stride) of each convolution.
REACTOR_CONVOLUTIONS = ((16, 8, 4), (32, 4, 2), (32, 3, 1))
# Mnih et al. 2015, "Model architecture"; ACER, section 4.
DQN_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))

# Ours, for other sizes: by the shorter side from which on they are used.
_CONVOLUTIONS_BY_SIDE = {
    0: (),
    3: ((16, 3, 1),),  # MinAtar (Young and Tian 2019), 10 x 10
    20: ((16, 4, 2), (32, 3, 1)),
    48: DQN_CONVOLUTIONS,
    128: ((32, 8, 4), (64, 4, 2), (64, 4, 2), (64, 3, 1)),  # 210 x 160: 3,456 features
}

Activation: TypeAlias = Callable[[jax.Array], jax.Array]
Convolutions: TypeAlias = Sequence[tuple[int, int, int]]  # channels, kernel and stride of each


class MakeTorso(Protocol):
    """Makes a torso: called inside Haiku's transform, once for each torso of the network."""

    def __call__(self) -> Callable[[jax.Array], jax.Array]:
        """Returns a module or function: observations `[T, ...]` -> float features `[T, D]`."""


def crelu(x: jax.Array) -> jax.Array:
    """Concatenated ReLU: `[..., D] -> [..., 2 D]`, (relu(x), relu(-x)) (Shang et al. 2016)."""
    return jax.nn.relu(jnp.concatenate([x, -x], axis=-1))


def choose_convolutions(shape: tuple[int, ...]) -> Convolutions:
    """Convolutions for images of any size, by their shorter side (ours).

    Args:
      shape: `[height, width, channels]`.
    """
    side = min(shape[:2])
    return _CONVOLUTIONS_BY_SIDE[max(least for least in _CONVOLUTIONS_BY_SIDE if least <= side)]


class ImageTorso(hk.Module):
    """uint8 images `[T, height, width, channels]` -> features `[T, D]`.

    Scaled to [0, 1], then valid convolutions, each followed by the activation, then flattened.
    """

    def __init__(
        self,
        convolutions: Convolutions = REACTOR_CONVOLUTIONS,
        activation: Activation = crelu,
        w_init: hk.initializers.Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self._convolutions = [
            Convolution(channels, kernel, stride, w_init)
            for channels, kernel, stride in convolutions
        ]
        self._activation = activation

    def __call__(self, images: jax.Array) -> jax.Array:
        """`[T, height, width, channels]` -> `[T, D]`."""
        chex.assert_rank(images, 4)
        features = images.astype(jnp.float32) / 255.0
        for convolution in self._convolutions:
            features = self._activation(convolution(features))
        return hk.Flatten()(features)


class VectorTorso(hk.Module):
    """Float arrays `[T, ...]`, flattened, -> features `[T, D]`: linear layers with activations."""

    def __init__(
        self, sizes: Sequence[int], activation: Activation = crelu, name: str | None = None
    ):
        super().__init__(name=name)
        self._layers = [hk.Linear(size) for size in sizes]
        self._activation = activation

    def __call__(self, vectors: jax.Array) -> jax.Array:
        """`[T, ...]` -> `[T, D]`."""
        features = hk.Flatten()(vectors.astype(jnp.float32))
        for layer in self._layers:
            features = self._activation(layer(features))
        return features


def choose_torso(
    observation: specs.Array,
    convolutions: Convolutions | None = REACTOR_CONVOLUTIONS,
    vector_sizes: Sequence[int] = (),
    activation: Activation = crelu,
    w_init: hk.initializers.Initializer | None = None,
    own: MakeTorso | None = None,
) -> MakeTorso:
    """What makes the torso for an observation: `ImageTorso`, `VectorTorso`, or a user's.

    Args:
      observation: spec of one observation.
      convolutions: (channels, kernel, stride) of each, for images; None: `choose_convolutions`.
      vector_sizes: units of the layers, for float observations.
      activation: of each layer.
      w_init: of the convolutions; None: Haiku's.
      own: makes a user's torso in place of the default ones, which may support any observation.

    Raises:
      ValueError: names the observation and what is allowed, or what the user's torso returned.
    """
    if own is not None:
        _check_features(own, observation)
        return own
    check_observation(observation, convolutions)
    if not is_image(observation):
        return lambda: VectorTorso(vector_sizes, activation, name="torso")
    chosen = choose_convolutions(observation.shape) if convolutions is None else convolutions
    return lambda: ImageTorso(chosen, activation, w_init, name="torso")


def check_observation(
    observation: specs.Array, convolutions: Convolutions | None = REACTOR_CONVOLUTIONS
) -> None:
    """Checks that a default torso supports an observation.

    Raises:
      ValueError: names shape and dtype of the observation, and what is allowed.
    """
    given = f"observations of shape {observation.shape} and dtype {np.dtype(observation.dtype)}"
    if not observation.shape or 0 in observation.shape:
        raise ValueError(f"No network for {given}: allowed are arrays with at least one entry.")
    if not is_image(observation):
        if not np.issubdtype(observation.dtype, np.floating):
            raise ValueError(
                f"No network for {given}: allowed are uint8 images [height, width, channels] and "
                "float arrays."
            )
        return
    for side in observation.shape[:2]:
        size = side
        for _, kernel, stride in convolutions or ():
            size = (size - kernel) // stride + 1
        if size < 1:
            raise ValueError(
                f"No network for {given}: a side of {side} pixels is too small for convolutions of "
                f"(channels, kernel, stride) {tuple(convolutions or ())}: give others as "
                "convolutions, or None to choose by image size."
            )


def is_image(observation: specs.Array) -> bool:
    """Whether an observation is an image: rank 3 and uint8."""
    return len(observation.shape) == 3 and observation.dtype == np.uint8


def _check_features(own: MakeTorso, observation: specs.Array) -> None:
    network = make_feed_forward_network(own, observation)
    observations = jax.ShapeDtypeStruct((2, *observation.shape), observation.dtype)
    params = jax.eval_shape(network.init, jax.random.key(0))
    found = jax.eval_shape(network.apply, params, observations)
    is_matrix = isinstance(found, jax.ShapeDtypeStruct) and found.ndim == 2
    if not (is_matrix and found.shape[0] == 2 and jnp.issubdtype(found.dtype, jnp.floating)):
        raise ValueError(
            "A torso must map observations [T, ...] to float features [T, D], got "
            f"{found} for observations of shape {observations.shape}."
        )
