"""Reactor with other torsos: `retrax train torsos:LAYER_NORM`, or `torsos:IMPALA`, in this folder.

Both are for `atari_laptop`, with the initial weights of that preset.
"""

import haiku as hk
import jax
from jax import numpy as jnp

from retrax.agents.reactor import AGENT, Config
from retrax.networks import ImageTorso

LAPTOP = Config.atari_laptop()
INIT = hk.initializers.Orthogonal(LAPTOP.orthogonal_gain)
CHANNELS = (4, 8, 8)  # a quarter of IMPALA's, for one core


class NormedTorso(ImageTorso):
    """Reactor's torso, with a LayerNorm after it."""

    def __call__(self, images: jax.Array) -> jax.Array:
        """`[T, height, width, channels]` -> `[T, D]`."""
        return hk.LayerNorm(-1, create_scale=True, create_offset=True)(super().__call__(images))


class ResidualTorso(hk.Module):
    """IMPALA's larger torso (Espeholt et al. 2018, figure 3, right), with fewer channels."""

    def __call__(self, images: jax.Array) -> jax.Array:
        """`[T, height, width, channels]` -> `[T, D]`."""
        x = images.astype(jnp.float32) / 255.0
        for channels in CHANNELS:
            x = hk.max_pool(hk.Conv2D(channels, 3, w_init=INIT)(x), (3, 3, 1), (2, 2, 1), "SAME")
            for _ in range(2):
                y = hk.Conv2D(channels, 3, w_init=INIT)(jax.nn.relu(x))
                x += hk.Conv2D(channels, 3, w_init=INIT)(jax.nn.relu(y))
        return hk.Flatten()(jax.nn.relu(x))


LAYER_NORM = AGENT.override(
    "layer_norm", torso=lambda: NormedTorso(LAPTOP.convolutions, w_init=INIT)
)
IMPALA = AGENT.override("impala", torso=ResidualTorso)
