"""One step of an optimiser."""

from typing import Any

import optax


def descend(
    optimizer: optax.GradientTransformation,
    gradients: Any,
    optimizer_state: optax.OptState,
    params: Any,
) -> tuple[Any, optax.OptState]:
    """One step of gradient descent.

    Args:
      optimizer: optax's.
      gradients: of the loss, a pytree like `params`.
      optimizer_state: from `optimizer.init`, or from the step before.
      params: a pytree of float arrays.

    Returns:
      The new parameters and the new state of the optimiser.
    """
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, params)
    return optax.apply_updates(params, updates), optimizer_state
