"""Life-long novelty of a state, and the intrinsic reward (NGU, section 2.2).

Random network distillation: a predictor learns the outputs of a fixed random network. Its error is
large for states unlike those it was trained on.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class Moments(NamedTuple):
    """Mean and deviation of a stream of numbers, by Welford's recursion.

    Attributes:
      number: int32 `[]`.
      mean: float32 `[]`.
      squares: float32 `[]`, the sum of squared deviations from the mean.
    """

    number: jax.Array
    mean: jax.Array
    squares: jax.Array


def init() -> Moments:
    """The moments of an empty stream."""
    return Moments(jnp.zeros((), jnp.int32), jnp.zeros(()), jnp.zeros(()))


def distillation_error(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """err(x) = || g_hat(x) - g(x) ||^2 (NGU, section 2.2).

    Args:
      prediction: `[..., D]`, g_hat(x).
      target: `[..., D]`, g(x), the random network's; takes no gradient.

    Returns:
      `[...]`, >= 0.
    """
    chex.assert_equal_shape([prediction, target])
    return jnp.sum(jnp.square(prediction - jax.lax.stop_gradient(target)), axis=-1)


def modulator(moments: Moments, error: jax.Array) -> tuple[jax.Array, Moments]:
    """alpha_t = 1 + (err(x_t) - mu_e) / sigma_e, over the errors so far, this one included.

    Args:
      moments: of the earlier errors.
      error: `[]`, err(x_t).

    Returns:
      alpha_t, `[]`, 1 while all errors were equal, and the new moments.
    """
    number = moments.number + 1
    difference = error - moments.mean
    mean = moments.mean + difference / number
    squares = moments.squares + difference * (error - mean)
    deviation = jnp.sqrt(squares / number)
    alpha = 1.0 + jnp.where(deviation > 0, (error - mean) / jnp.maximum(deviation, 1e-30), 0.0)
    return alpha, Moments(number, mean, squares)


def intrinsic_reward(episodic: jax.Array, alpha: jax.Array, max_modulator: float) -> jax.Array:
    """r^i_t = r^episodic_t min(max(alpha_t, 1), L) (NGU, eq. 1).

    Args:
      episodic: `[]`, >= 0.
      alpha: `[]`, the life-long modulator.
      max_modulator: L >= 1.

    Returns:
      A scalar `[]`.
    """
    return episodic * jnp.clip(alpha, 1.0, max_modulator)
