"""Life-long novelty of a state, and the intrinsic reward (NGU, section 2.2).

Random network distillation: a predictor learns the outputs of a fixed random network. Its error is
large for states unlike those it was trained on.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class Moments(NamedTuple):
    """Mean and variance of the newest numbers of a stream, float32 `[]`."""

    number: jax.Array  # int32 `[]`, numbers so far, at most the window
    mean: jax.Array
    variance: jax.Array


def init() -> Moments:
    """The moments of no number."""
    return Moments(jnp.zeros((), jnp.int32), jnp.zeros(()), jnp.zeros(()))


def distillation_error(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """err(x) = || g_hat(x) - g(x) ||^2 `[...]` of `[..., D]` (NGU, 2.2); g(x) takes no gradient."""
    chex.assert_equal_shape([prediction, target])
    return jnp.sum(jnp.square(prediction - jax.lax.stop_gradient(target)), axis=-1)


def modulator(
    moments: Moments, error: jax.Array, window: int, is_trained: jax.Array
) -> tuple[jax.Array, Moments]:
    """alpha_t = 1 + (err(x_t) - mu_e) / sigma_e, over the newest errors, this one included.

    The n-th error has weight 1 / n in mu_e and sigma_e, and from n = W on 1 / W: both are
    cumulative over the first W errors, and forget exponentially afterwards. Errors of a predictor
    that was never trained say nothing about novelty: they are not counted, so alpha is 1, as it is
    while all errors were equal.
    """
    number = jnp.minimum(moments.number + 1, window)
    step = 1.0 / number
    difference = error - moments.mean
    mean = moments.mean + step * difference
    variance = (1.0 - step) * (moments.variance + step * jnp.square(difference))
    counted = Moments(number, mean, variance)
    new = jax.tree.map(lambda x, y: jnp.where(is_trained, x, y), counted, moments)
    return _standardised(error, mean, jnp.sqrt(variance)), new


def batch_modulators(errors: jax.Array, mask: jax.Array) -> jax.Array:
    """Computes alpha = 1 + (err(x) - mu_e) / sigma_e over a batch of errors (ours).

    The batch is the learner's view of what has been seen lately, as an actor's newest errors are
    the actor's. Only errors where the mask is True count, at least one; other results mean nothing.
    """
    chex.assert_equal_shape([errors, mask])
    mean = jnp.mean(errors, where=mask)
    deviation = jnp.sqrt(jnp.mean(jnp.square(errors - mean), where=mask))
    return _standardised(errors, mean, deviation)


def _standardised(error: jax.Array, mean: jax.Array, deviation: jax.Array) -> jax.Array:
    return 1.0 + jnp.where(deviation > 0, (error - mean) / jnp.maximum(deviation, 1e-30), 0.0)


def intrinsic_reward(episodic: jax.Array, alpha: jax.Array, max_modulator: float) -> jax.Array:
    """r^i_t = r^episodic_t min(max(alpha_t, 1), L), element by element (NGU, eq. 1)."""
    return episodic * jnp.clip(alpha, 1.0, max_modulator)
