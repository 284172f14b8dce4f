"""The states of objects that are their attributes: our tasks, and most of other people's.

An object qualifies if its class is written in Python and all its attributes are plain data or
constants: functions without a closure, classes, modules, and Gymnasium's spaces that have drawn
nothing. Everything else (a simulator of another library, a list of objects) may hide a state, so it
is refused.
"""

import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .plain_data import NotPlainError

_CONSTANTS = "constants"
_VALUES = "values"
_LARGEST = object.__basicsize__ + 16  # a dictionary and a list of weak references


def attributes(thing: Any, skipped: Collection[str] = ()) -> dict[str, Any]:
    """What `set_attributes` needs: values as they are, not copied, and names of constants.

    Args:
      thing: the object.
      skipped: names of attributes that need not be kept.

    Raises:
      NotPlainError: the object's class hides a state. (`pack` refuses values that are not plain.)
    """
    kind = type(thing)
    slots = any(getattr(base, "__slots__", ()) for base in kind.__mro__)
    if slots or kind.__basicsize__ > _LARGEST or not hasattr(thing, "__dict__"):
        raise NotPlainError(f"{kind.__qualname__} is not a plain Python class")
    values, constants = {}, {}
    for name, value in vars(thing).items():
        if name in skipped:
            continue
        described = _constant(value)
        if described is None:
            values[name] = value
        else:
            constants[name] = described
    return {"class": kind.__qualname__, _VALUES: values, _CONSTANTS: constants}


def set_attributes(thing: Any, skipped: Collection[str], state: Mapping[str, Any]) -> None:
    """Gives an object the attributes of another one, and no others.

    Args:
      thing: an object that was made in the same way.
      skipped: as of `attributes`.
      state: of the other one, by `attributes`.

    Raises:
      ValueError: the object is of another class, or has other constants.
    """
    here = attributes(thing, skipped)
    for part in ("class", _CONSTANTS):
        if here[part] != state[part]:
            raise ValueError(f"{part} {here[part]} instead of {state[part]}")
    for name in here[_VALUES].keys() - state[_VALUES].keys():
        delattr(thing, name)
    vars(thing).update(state[_VALUES])


def _constant(value: Any) -> str | None:
    """A description of a constant, the same in every process; None for other values."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, type) or (isinstance(value, types.FunctionType) and not value.__closure__):
        return f"{value.__module__}.{value.__qualname__}"
    if type(value).__module__.startswith("gymnasium.spaces"):
        return None if any(space._np_random for space in _spaces(value)) else repr(value)
    return None


def _spaces(space: Any) -> Iterator[Any]:
    """A space, and those inside of it."""
    yield space
    parts = getattr(space, "spaces", ())
    for part in parts.values() if isinstance(parts, dict) else parts:
        yield from _spaces(part)
