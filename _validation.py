"""How configs refuse wrong values: one sentence that names the field, the value and the allowed."""

import math
from collections.abc import Sequence
from typing import Any


def check_range(
    config: Any, field: str, low: float, high: float = math.inf, *, above: bool = False
) -> None:
    """Refuses a config whose number is not finite or out of [low, high] (`above`: (low, high]).

    Raises:
      ValueError: names the field, what it is, and what is allowed.
    """
    value = getattr(config, field)
    if math.isfinite(value) and low <= value <= high and not (above and value == low):
        return
    lower = f"> {low}" if above else f">= {low}"
    upper = "" if math.isinf(high) else f" and <= {high}"
    raise ValueError(f"{type(config).__name__}.{field} must be {lower}{upper}, got {value}.")


def check_one_of(config: Any, field: str, allowed: Sequence[Any]) -> None:
    """Refuses a config whose field is none of the allowed values.

    Raises:
      ValueError: names the field, what it is, and what is allowed.
    """
    value = getattr(config, field)
    if value not in allowed:
        names = ", ".join(map(str, allowed))
        raise ValueError(f"{type(config).__name__}.{field} must be one of {names}, got {value!r}.")
