"""Convolutions of images whose gradient is fast on CPUs, too."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from .loops import are_for_loops, with_transposed_gradient

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
    """Valid convolution.

    On CPUs `convolve_blocks` gives its derivative with respect to the inputs: the gradient of a
    convolution with a stride has `stride - 1` zeros between its entries, and XLA's CPU backend is
    then five times slower than without.

    Args:
      inputs: `[N, height, width, C]`.
      weights: `[k, k, C, D]`.
      stride: of both sides.

    Returns:
      `[N, (height - k) // stride + 1, (width - k) // stride + 1, D]`.
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
