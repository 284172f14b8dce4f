"""One step of an optimiser, and metrics of its gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import optax


def descend(
    optimizer: optax.GradientTransformation,
    gradients: Any,
    optimizer_state: optax.OptState,
    params: Any,
) -> tuple[Any, optax.OptState]:
    """One step of gradient descent: the new parameters and the new state of the optimiser."""
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, params)
    return optax.apply_updates(params, updates), optimizer_state


def gradient_metrics(gradients: Any, prefix: str = "") -> dict[str, jax.Array]:
    """Metrics of a loss's gradients, float32 `[]` each.

    * `gradient_norm`: their Euclidean norm, before any clipping.
    * `dead_units`: share of the entries of biases (arrays of rank 1) whose gradient is exactly 0; 0
      without biases. A unit with a ReLU is one of them if it was off for all of the batch. Units of
      other layers hardly ever are, but those that the batch does not use: values of actions that
      it lacks.
    """
    biases = [leaf for leaf in jax.tree.leaves(gradients) if leaf.ndim == 1]
    dead = sum((jnp.sum(leaf == 0) for leaf in biases), start=jnp.zeros((), int))
    share = dead / max(1, sum(leaf.size for leaf in biases))
    return {
        f"{prefix}gradient_norm": optax.tree.norm(gradients),
        f"{prefix}dead_units": share.astype(jnp.float32),
    }
