"""Checks of priorities, and importance weights that correct for prioritised sampling."""

import numpy as np

# A priority times the square of the number of slots must stay finite in float64.
LARGEST_PRIORITY = 1e100


def check_priorities(
    priorities: np.ndarray, size: int, largest: float = LARGEST_PRIORITY
) -> np.ndarray:
    """Converts priorities to float64 and checks them.

    Args:
      priorities: `[size]`, each finite and in [0, `largest`].
      size: the expected number of priorities.
      largest: at most `LARGEST_PRIORITY`.

    Returns:
      float64 `[size]`.

    Raises:
      ValueError: for another shape, or a priority that is NaN, infinite, negative or too large.
    """
    priorities = np.asarray(priorities, dtype=np.float64)
    if priorities.shape != (size,):
        raise ValueError(
            f"priorities must have one entry per slot, shape ({size},), got {priorities.shape}."
        )
    wrong = ~((priorities >= 0) & (priorities <= largest))  # also true for NaN
    if wrong.any():
        raise ValueError(
            f"priorities must be finite, at least 0 and at most {largest:g}, got "
            f"{priorities[wrong][0]}."
        )
    return priorities


def importance_weights(probabilities: np.ndarray, size: int, exponent: float) -> np.ndarray:
    """Importance weights `(1 / (size * P)) ** exponent`.

    With exponent beta = 1, which Reactor fixes, `sum_i P_i w_i f_i` is the plain mean of f, so an
    update is unbiased. The weights are not divided by their maximum: the scale of an update would
    depend on the batch.

    Args:
      probabilities: `[n]`, above 0: of the drawn slots, as returned by the selector.
      size: the number of slots that can be drawn, at least 1.
      exponent: beta, at least 0; with 0 every weight is 1.

    Returns:
      float64 `[n]`.

    Raises:
      ValueError: an argument is out of its range.
    """
    probabilities = np.asarray(probabilities, np.float64)
    if size < 1:
        raise ValueError(f"size must be at least 1 slot, got {size}.")
    if not 0 <= exponent < np.inf:
        raise ValueError(f"exponent must be finite and at least 0, got {exponent}.")
    wrong = ~((probabilities > 0) & (probabilities < np.inf))
    if wrong.any():
        raise ValueError(
            f"probabilities must be above 0 and finite, got {probabilities[wrong][0]}."
        )
    return (1 / (size * probabilities)) ** exponent
