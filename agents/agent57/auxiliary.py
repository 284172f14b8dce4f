"""Losses of the networks of the intrinsic reward, on the last frames of sampled sequences.

`T + 1` denotes the rows of a sequence, `F` the number of used frames, `A` of actions.
"""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from ...datatypes import Row, Sample
from ...networks import Agent57Networks
from ..sequences import masked_mean
from .config import Config
from .novelty import distillation_error


def auxiliary_loss(
    params: dict[str, Any],
    random_params: Any,
    sample: Sample,
    *,
    config: Config,
    networks: Agent57Networks,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The sum of both losses, averaged over the batch.

    Args:
      params: of `embedding`, `classifier` and `predictor`; they take the gradient.
      random_params: of the random network.
      sample: B sequences.
      config: hyper-parameters.
      networks: the agent's.

    Returns:
      The loss `[]`, and metrics.
    """

    def each(rows: Row, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        after, exists = last_steps(mask, config.auxiliary_frames)
        before, seen = rows.observation[after - 1], rows.observation[after]
        embedded = (networks.embedding.apply(params["embedding"], x) for x in (before, seen))
        logits = networks.classifier.apply(params["classifier"], *embedded)
        action = rows.action[after - 1]
        predicted = networks.novelty.apply(params["predictor"], seen)
        return (
            inverse_dynamics_loss(logits, action, exists),
            distillation_loss(predicted, networks.novelty.apply(random_params, seen), exists),
        )

    dynamics, distillation = jax.vmap(each)(sample.rows, sample.mask)
    metrics = {"embedding_loss": jnp.mean(dynamics), "novelty_loss": jnp.mean(distillation)}
    return metrics["embedding_loss"] + metrics["novelty_loss"], metrics


def last_steps(mask: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The last transitions of a sequence, without padding (NGU, appendix A: five frames).

    Args:
      mask: bool `[T + 1]`, True, then False for the padding.
      count: F >= 1.

    Returns:
      Destination rows of the transitions, int32 `[F]`, in 1 .. T; which of them exist, bool `[F]`.
    """
    last = jnp.sum(mask.astype(jnp.int32)) - 1
    rows = last - jnp.arange(count - 1, -1, -1)
    return jnp.maximum(rows, 1), rows >= 1


def inverse_dynamics_loss(logits: jax.Array, actions: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of -log p(a_t | x_t, x_{t+1}); trains the embedding (NGU, section 2.2).

    Args:
      logits: `[F, A]`, logits of the action between two embedded states.
      actions: `[F]`, the actions taken, in 0 .. A - 1; not checked.
      mask: bool `[F]`, which transitions count.

    Returns:
      A scalar `[]`; 0 if the mask is empty.
    """
    chex.assert_rank([logits, actions, mask], [2, 1, 1])
    errors = optax.losses.softmax_cross_entropy_with_integer_labels(logits, actions)
    return masked_mean(errors, mask)


def distillation_loss(prediction: jax.Array, target: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of || g_hat(x) - g(x) ||^2; trains the predictor (NGU, section 2.2).

    Args:
      prediction: `[F, D]`.
      target: `[F, D]`; takes no gradient.
      mask: bool `[F]`, which frames count.

    Returns:
      A scalar `[]`; 0 if the mask is empty.
    """
    chex.assert_rank([prediction, target, mask], [2, 2, 1])
    return masked_mean(distillation_error(prediction, target), mask)
