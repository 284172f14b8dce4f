"""Torsos: from observations `[T, ...]` to features `[T, D]`, for images and for vectors."""

import functools
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from .base import are_for_loops, make_feed_forward_network, with_transposed_gradient

_LAYOUT = ("NHWC", "HWIO", "NHWC")


class Convolution(hk.Module):
    """Valid convolution `[N, height, width, C] -> [N, height', width', D]` with square kernels.

    It is `haiku.Conv2D` with the same parameters and outputs. Only the gradient with respect to the
    inputs is computed in another way: see `convolve`.
    """

    def __init__(
        self,
        channels: int,
        kernel: int,
        stride: int,
        w_init: hk.initializers.Initializer | None = None,
        name: str = "conv2_d",
    ):
        """`channels` is D; `w_init` initialises the kernel `[k, k, C, D]`, None: as Haiku does."""
        super().__init__(name=name)
        self._channels, self._kernel, self._stride = channels, kernel, stride
        self._w_init = w_init

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """See the class."""
        shape = (self._kernel, self._kernel, inputs.shape[-1], self._channels)
        deviation = 1.0 / np.sqrt(np.prod(shape[:-1]))
        init = self._w_init or hk.initializers.TruncatedNormal(deviation)
        weights = hk.get_parameter("w", shape, inputs.dtype, init=init)
        biases = hk.get_parameter("b", shape[-1:], inputs.dtype, init=jnp.zeros)
        form = convolve_patches if are_for_loops() else convolve
        return form(inputs, weights, self._stride) + biases


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def convolve(inputs: jax.Array, weights: jax.Array, stride: int) -> jax.Array:
    """Valid convolution of `[N, height, width, C]` and `[k, k, C, D]`.

    On CPUs `convolve_blocks` gives its derivative with respect to the inputs: the gradient of a
    convolution with a stride has `stride - 1` zeros between its entries, and XLA's CPU backend is
    then five times slower than without.
    """
    return _convolve(inputs, weights, stride)


def convolve_blocks(inputs: jax.Array, weights: jax.Array, stride: int) -> jax.Array:
    """The same, with stride 1 over blocks of `stride x stride` pixels, which become channels."""
    kernel, _, channels, outputs = weights.shape
    blocks = -(-kernel // stride)  # in a row of the kernel, with zeros behind it
    missing = blocks * stride - kernel
    padded = jnp.pad(weights, ((0, missing), (0, missing), (0, 0), (0, 0)))
    split = padded.reshape(blocks, stride, blocks, stride, channels, outputs).swapaxes(1, 2)
    by_block = split.reshape(blocks, blocks, -1, outputs)
    number, *sides, _ = inputs.shape
    rows, columns = ((side - kernel) // stride + blocks for side in sides)
    edges = [
        (0, stride * size - side, 0) for size, side in zip((rows, columns), sides, strict=True)
    ]
    # Cut where no kernel reaches, or followed by zeros.
    image = jax.lax.pad(inputs, jnp.zeros((), inputs.dtype), ((0, 0, 0), *edges, (0, 0, 0)))
    split = image.reshape(number, rows, stride, columns, stride, channels).swapaxes(2, 3)
    return _convolve(split.reshape(number, rows, columns, -1), by_block, 1)


def convolve_patches(inputs: jax.Array, weights: jax.Array, stride: int) -> jax.Array:
    """The same, as the product of the patches under the kernel and the weights."""
    kernel, *_, outputs = weights.shape
    sides = inputs.shape[1:3]
    rows, columns = (stride * ((side - kernel) // stride) + 1 for side in sides)
    patches = jnp.concatenate(
        [
            inputs[:, i : i + rows : stride, j : j + columns : stride]
            for i in range(kernel)
            for j in range(kernel)
        ],
        axis=-1,
    )
    return patches @ with_transposed_gradient(weights.reshape(-1, outputs))


@convolve.defjvp
def _derivative(
    stride: int, primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (inputs, weights), (of_inputs, of_weights) = primals, tangents
    usual = functools.partial(_convolve, stride=stride)
    blocks = functools.partial(convolve_blocks, stride=stride)
    branches = {"default": usual} if stride == 1 else {"default": usual, "cpu": blocks}
    along = jax.lax.platform_dependent(of_inputs, weights, **branches)
    return usual(inputs, weights), along + usual(inputs, of_weights)


def _convolve(inputs: jax.Array, weights: jax.Array, stride: int) -> jax.Array:
    return jax.lax.conv_general_dilated(
        inputs, weights, (stride, stride), "VALID", dimension_numbers=_LAYOUT
    )


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
Convolutions: TypeAlias = tuple[tuple[int, int, int], ...]  # channels, kernel, stride of each


class MakeTorso(Protocol):
    """Makes a torso: called inside Haiku's transform, once for each torso of the network."""

    def __call__(self) -> Callable[[jax.Array], jax.Array]:
        """Returns a module or function: observations `[T, ...]` -> float features `[T, D]`."""


def crelu(x: jax.Array) -> jax.Array:
    """Concatenated ReLU: `[..., D] -> [..., 2 D]`, (relu(x), relu(-x)) (Shang et al. 2016)."""
    return jax.nn.relu(jnp.concatenate([x, -x], axis=-1))


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
      observation: spec of one observation: uint8 image `[height, width, channels]` or float array.
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
    chosen = choose_convolutions(observation, convolutions)
    if not is_image(observation):
        return lambda: VectorTorso(vector_sizes, activation, name="torso")
    return lambda: ImageTorso(chosen, activation, w_init, name="torso")


def choose_convolutions(
    observation: specs.Array, convolutions: Convolutions | None = None
) -> Convolutions:
    """The convolutions of a default torso: given ones, or by an image's shorter side (ours).

    A `ValueError` refuses an observation that no default torso supports. Vectors have none.
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
        return ()
    if convolutions is None:
        side = min(observation.shape[:2])
        return _CONVOLUTIONS_BY_SIDE[max(least for least in _CONVOLUTIONS_BY_SIDE if least <= side)]
    for side in observation.shape[:2]:
        size = side
        for _, kernel, stride in convolutions:
            size = (size - kernel) // stride + 1
        if size < 1:
            raise ValueError(
                f"No network for {given}: a side of {side} pixels is too small for convolutions of "
                f"(channels, kernel, stride) {tuple(convolutions)}: give others as convolutions, "
                "or None to choose by image size."
            )
    return convolutions


def legal_actions(observations: jax.Array, num_actions: int) -> jax.Array:
    """The legal actions, bool `[T, A]`: the mask that ends observations with `masks_actions`.

    They are those whose entry among the last A of the last axis is not 0; an image has the same
    entries in each pixel. Where there is none, as on padding, all are, so that nothing is NaN.
    """
    rows = observations.reshape(len(observations), -1, observations.shape[-1])
    mask = rows[:, 0, -num_actions:] != 0
    return mask | ~jnp.any(mask, axis=-1, keepdims=True)


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
