"""How configs refuse wrong values: one sentence that names the field, the value and the allowed."""

import math
import numbers
from collections.abc import Sequence
from typing import Any


def check_range(
    config: Any,
    field: str,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: bool = False,
    below: bool = False,
) -> None:
    """Refuses a config whose field is not a finite number in [low, high].

    Args:
      config: a dataclass or any object with named fields.
      field: the field's name.
      low: the least value; `above` excludes it.
      high: the largest value; `below` excludes it.
      above: whether `low` itself is refused.
      below: whether `high` itself is refused.

    Raises:
      ValueError: names the field, what it is, and what is allowed.
    """
    _check(config, field, low, high, above, below, "a number", numbers.Real)


def check_integer(config: Any, field: str, low: int, high: float = math.inf) -> None:
    """Refuses a config whose field is not an integer in [low, high].

    Raises:
      ValueError: names the field, what it is, and what is allowed.
    """
    _check(config, field, low, high, False, False, "an integer", numbers.Integral)


def check_one_of(config: Any, field: str, allowed: Sequence[Any]) -> None:
    """Refuses a config whose field is none of the allowed values.

    Raises:
      ValueError: names the field, what it is, and what is allowed.
    """
    value = getattr(config, field)
    if not any(value is choice or value == choice for choice in allowed):
        names = ", ".join(map(str, allowed))
        raise ValueError(f"{type(config).__name__}.{field} must be one of {names}, got {value!r}.")


def check_sizes(config: Any, field: str) -> None:
    """Refuses a config whose field is not a (nested) tuple of integers >= 1.

    Raises:
      ValueError: names the field, what it is, and what is allowed.
    """
    if not _are_sizes(getattr(config, field)):
        raise ValueError(
            f"{type(config).__name__}.{field} must be a tuple of integers >= 1, got "
            f"{getattr(config, field)!r}."
        )


def _check(
    config: Any,
    field: str,
    low: float,
    high: float,
    above: bool,
    below: bool,
    kind_name: str,
    kind: type,
) -> None:
    value = getattr(config, field)
    right_kind = isinstance(value, kind) and not isinstance(value, bool)
    excluded = (above and value == low) or (below and value == high)
    if right_kind and math.isfinite(value) and low <= value <= high and not excluded:
        return
    bounds = [] if math.isinf(low) else [f"{'>' if above else '>='} {low}"]
    bounds += [] if math.isinf(high) else [f"{'<' if below else '<='} {high}"]
    allowed = " ".join([kind_name, " and ".join(bounds)]).strip()
    raise ValueError(f"{type(config).__name__}.{field} must be {allowed}, got {value!r}.")


def _are_sizes(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_are_sizes, value))
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 1
