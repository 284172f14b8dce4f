"""Importance weights with an annealed exponent (Schaul et al. 2016, section 3.4).

The exponent beta belongs to the agent, which counts updates: the replay must serve weights of
exponent 1 (`ReplayConfig.importance_exponent`). `B` denotes the batch.
"""

import jax
import jax.numpy as jnp
import optax


def linear_importance_exponent(start: float, num_updates: int) -> optax.Schedule:
    """Beta as a function of the updates made: from `start` linearly to 1.

    Args:
      start: beta_0, in [0, 1]; 0.4 in the paper, for proportional priorities.
      num_updates: updates after which beta is 1 and stays there, >= 1.

    Returns:
      Number of updates `[]` -> beta `[]`.
    """
    return optax.linear_schedule(start, 1.0, num_updates)


def anneal_weights(
    weights: jax.Array, exponent: jax.Array | float, *, normalize: bool = False
) -> jax.Array:
    """Importance weights (1 / (R P))^beta from those of exponent 1.

    Args:
      weights: `[B]`, 1 / (R P) for R sequences in the replay; must be > 0, not checked.
      exponent: beta `[]`, in [0, 1]. 1 leaves the weights unchanged, 0 makes all of them 1.
      normalize: whether to divide by the largest weight of the batch, so that weights only scale
        updates down (section 3.4).

    Returns:
      float32 `[B]`, > 0; at most 1 if normalised.
    """
    if normalize:
        weights = weights / jnp.max(weights)
    return jnp.power(weights, exponent)
