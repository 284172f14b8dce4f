"""Bounds of config fields, declared beside the fields and checked at construction.

A field names its bounds in its type: `Annotated[float, Range(0.0, 1.0)]`, `Annotated[int,
Range(1)]`, `Annotated[tuple[int, ...], Sizes()]`. `Literal[...]` and `bool` need none.
`check_fields` in `__post_init__` refuses the first field whose value is not allowed.
"""

import dataclasses
import functools
import math
import numbers
import types
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

_LARGEST = 2.0**128 - 2.0**104  # of float32


@dataclasses.dataclass(frozen=True)
class Range:
    """Bounds of a number, which are within them unless `above` or `below`."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, value: Any) -> bool:
        """Whether a number is within the bounds. NaN is not."""
        is_above = self.low < value if self.above else self.low <= value
        return bool(is_above and (value < self.high if self.below else value <= self.high))

    def __str__(self) -> str:
        """The bounds in words: `>= 0.0 and < 1.0`; empty if there are none."""
        bounds = [] if math.isinf(self.low) else [f"{'>' if self.above else '>='} {self.low}"]
        bounds += [] if math.isinf(self.high) else [f"{'<' if self.below else '<='} {self.high}"]
        return " and ".join(bounds)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A tuple with at least so many entries: integers >= 1, or tuples of `each` such integers."""

    least: int = 0
    each: int = 0

    def __contains__(self, value: Any) -> bool:
        """Whether a value is such a tuple."""
        return isinstance(value, tuple) and len(value) >= self.least and all(map(self._fits, value))

    def _fits(self, entry: Any) -> bool:
        if self.each:
            return entry in Sizes() and len(entry) == self.each
        return type(entry) is int and entry >= 1

    def __str__(self) -> str:
        """The bounds in words."""
        each = f"tuples of {self.each} " if self.each else ""
        least = f", at least {self.least} of them" if self.least else ""
        return f"a tuple of {each}integers >= 1{least}"


class FieldType(NamedTuple):
    """A field's type without `Annotated` and `None`, its bounds, and whether None is allowed."""

    type: Any
    bounds: Range | Sizes | None
    optional: bool


@functools.cache
def field_types(config_class: type) -> dict[str, FieldType]:
    """The types and bounds of a dataclass's fields, by name, in order."""
    hints = get_type_hints(config_class, include_extras=True)
    return {field.name: split_type(hints[field.name]) for field in dataclasses.fields(config_class)}


def check_fields(config: Any) -> None:
    """Checks every field of a dataclass against its type and bounds.

    Numbers must be finite, floats as float32, in which they are computed with. An integer is
    accepted for a float; a bool is not a number. Numbers of other libraries, as NumPy's, become
    Python's, which JSON has. Types other than numbers, `bool`, `str`, `Literal`, dataclasses and
    fields with bounds are not checked. A ValueError names field, value and what is allowed.
    """
    for name, field_type in field_types(config.__class__).items():
        check_field(config, name, field_type.bounds)


def split_type(hint: Any) -> FieldType:
    """The parts of a type."""
    if get_origin(hint) is Annotated:
        hint, *markers = get_args(hint)
        inner = split_type(hint)
        bounds = [marker for marker in markers if isinstance(marker, (Range, Sizes))]
        return inner._replace(bounds=bounds[0]) if bounds else inner
    if get_origin(hint) in (Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        optional = len(members) < len(get_args(hint))
        if len(members) == 1:
            return split_type(members[0])._replace(optional=optional)
        return FieldType(hint, None, optional)
    return FieldType(hint, None, hint is type(None))


def check_field(config: Any, field: str, bounds: Range | Sizes | None) -> None:
    """`check_fields` of one field, with bounds that depend on other fields in place of its own."""
    hint, _, optional = field_types(config.__class__)[field]
    given = getattr(config, field)
    choices = get_args(hint) if get_origin(hint) is Literal else (True, False) * (hint is bool)
    value = next((x for x in choices if given is x or given == x), _plain(given))
    if isinstance(bounds, Sizes):
        fits, allowed = value in bounds, str(bounds)
    elif hint in (int, float):
        is_number = type(value) in (int, hint)
        fits = is_number and value in (bounds or Range())
        fits = fits and (hint is int or abs(value) <= _LARGEST)
        allowed = f"{'an integer' if hint is int else 'a number'} {bounds or ''}".strip()
        if hint is float and is_number and _LARGEST < abs(value) < math.inf:
            allowed = f"a number that float32 can hold, of at most {_LARGEST:.3g} in size"
    elif hint is str or hasattr(hint, "__dataclass_fields__"):
        fits, allowed = isinstance(value, hint), "text" if hint is str else f"a {hint.__name__}"
    else:
        fits = not choices or any(value is choice for choice in choices)
        allowed = f"one of {', '.join(map(str, choices))}"
    if not fits and (given is not None or not optional):
        allowed += " or None" * optional
        raise ValueError(f"{type(config).__name__}.{field} must be {allowed}, got {given!r}.")
    object.__setattr__(config, field, value)


def _plain(value: Any) -> Any:
    """A value with Python's numbers, which JSON knows, instead of NumPy's."""
    if type(value) is tuple:
        return tuple(map(_plain, value))
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)
