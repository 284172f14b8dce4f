"""What trains the networks behind the intrinsic reward: the last frames of sampled sequences.

`T + 1` denotes the rows of a sequence, `F` the frames that are used, `A` the actions.
"""

import chex
import jax
import jax.numpy as jnp
import optax

from .novelty import distillation_error


def last_steps(mask: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The last transitions of a sequence, padding left out (NGU, appendix A: five frames).

    Args:
      mask: bool `[T + 1]`, True and then, for the padding, False.
      count: F >= 1.

    Returns:
      Rows that the transitions lead to, int32 `[F]`, in 1 .. T; which of them exist, bool `[F]`.
    """
    last = jnp.sum(mask.astype(jnp.int32)) - 1
    rows = last - jnp.arange(count - 1, -1, -1)
    return jnp.maximum(rows, 1), rows >= 1


def inverse_dynamics_loss(logits: jax.Array, actions: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of -log p(a_t | x_t, x_{t+1}), which trains the embedding (NGU, section 2.2).

    Args:
      logits: `[F, A]`, of the action between two embedded states.
      actions: `[F]`, the actions taken, in 0 .. A - 1 (others are silently clamped).
      mask: bool `[F]`, which transitions count.

    Returns:
      A scalar `[]`, 0 if none counts.
    """
    chex.assert_rank([logits, actions, mask], [2, 1, 1])
    errors = optax.losses.softmax_cross_entropy_with_integer_labels(logits, actions)
    return _masked_mean(errors, mask)


def distillation_loss(prediction: jax.Array, target: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of || g_hat(x) - g(x) ||^2, which trains the predictor (NGU, section 2.2).

    Args:
      prediction: `[F, D]`.
      target: `[F, D]`; takes no gradient.
      mask: bool `[F]`, which frames count.

    Returns:
      A scalar `[]`, 0 if none counts.
    """
    chex.assert_rank([prediction, target, mask], [2, 2, 1])
    return _masked_mean(distillation_error(prediction, target), mask)


def _masked_mean(errors: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(mask, errors, 0.0)) / jnp.maximum(jnp.sum(mask), 1)
