"""The states of objects that are their attributes: our tasks, and most of other people's.

An object qualifies if its class is written in Python and all its attributes are plain data, named
tuples of plain data, or constants: functions without a closure, classes, modules, and Gymnasium's
spaces that have drawn nothing. Everything else (a simulator of another library, a list of objects)
may hide a state, so it is refused.

Data of its classes count, too: what can be written in place (a list of levels) is kept, what cannot
(a number) and sets must be the same where the state is restored.
"""

import collections
import enum
import logging
import pathlib
import re
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from .plain_data import NotPlainError

_LARGEST = object.__basicsize__ + 16  # a dictionary and a list of weak references
_IMMUTABLE: tuple[Any, ...] = (type(None), bool, int, float, complex, str, bytes, range)
_IMMUTABLE += (np.generic, np.dtype, enum.Enum, re.Pattern, pathlib.PurePath, logging.Logger)
_SETS = (tuple, set, frozenset)
_WRITABLE = (list, dict, collections.deque, np.ndarray, np.random.Generator)
_WITHOUT_DATA = ("builtins", "abc", "typing", "typing_extensions")  # modules of base classes


class Attributes(NamedTuple):
    """The state of one object.

    Attributes:
      thing: the object.
      skipped: names of attributes that need not be kept.
    """

    thing: Any
    skipped: Collection[str] = ()

    def state(self) -> dict[str, Any]:
        """Values as they are, not copied, and descriptions of constants.

        Raises:
          NotPlainError: the object's class hides a state. (`pack` refuses values that are none.)
        """
        kind = type(self.thing)
        slots = any(getattr(base, "__slots__", ()) for base in kind.__mro__)
        if slots or kind.__basicsize__ > _LARGEST or not hasattr(self.thing, "__dict__"):
            raise NotPlainError(f"{kind.__qualname__} is not a plain Python class")
        values, constants, shared = {}, {}, {}
        for name, value in vars(self.thing).items():
            if name in self.skipped:
                continue
            described = _constant(value)
            if described is not None:
                constants[name] = described
            elif _is_named_tuple(value):
                constants[name], values[name] = type(value).__qualname__, tuple(value)
            else:
                values[name] = value
        for name, _, value in _class_data(kind):
            described = _constant(value) or _unwritten(value)
            if described is not None:
                constants[name] = described
            elif isinstance(value, _WRITABLE):
                shared[name] = value
            else:
                what = f"{type(value).__module__}.{type(value).__qualname__}"
                raise NotPlainError(f"{name} is a {what}")
        parts = {"values": values, "constants": constants, "shared": shared}
        return {"class": kind.__qualname__, **parts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Gives the object the attributes of another one, made in the same way, and no others.

        Raises:
          ValueError: the object is of another class, or has other constants.
        """
        here = self.state()
        if here["class"] != state["class"]:
            raise ValueError(f"class {here['class']} instead of {state['class']}")
        if here.keys() != state.keys() or here["shared"].keys() != state["shared"].keys():
            raise ValueError("the state is of another version")
        ours, theirs = here["constants"], state["constants"]
        if ours != theirs:
            differ = [n for n in {**ours, **theirs} if ours.get(n) != theirs.get(n)]
            found = [{n: x[n] for n in differ if n in x} for x in (ours, theirs)]
            raise ValueError(f"constants {found[0]} instead of {found[1]}")
        for name in here["values"].keys() - state["values"].keys():
            delattr(self.thing, name)
        own = vars(self.thing)
        named = {name for name, value in own.items() if _is_named_tuple(value)}
        for name, value in state["values"].items():
            own[name] = type(own[name])(*value) if name in named else value
        for name, owner, _ in list(_class_data(type(self.thing))):
            if name in state["shared"]:
                setattr(owner, name.rpartition(".")[2], state["shared"][name])


def _class_data(kind: type) -> Iterator[tuple[str, type, Any]]:
    """Data in a class and its bases, but no methods: Class.name, the class, the value."""
    for owner in kind.__mro__:
        if owner.__module__ in _WITHOUT_DATA:
            continue
        for name, value in list(vars(owner).items()):
            hidden = name.startswith(("__", "_abc_"))
            if not hidden and not hasattr(type(value), "__get__"):
                yield f"{owner.__qualname__}.{name}", owner, value


def _constant(value: Any) -> str | None:
    """A description of a constant, the same in every process; None for other values."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, type) or (isinstance(value, types.FunctionType) and not value.__closure__):
        return f"{value.__module__}.{value.__qualname__}"
    if type(value).__module__.startswith("gymnasium.spaces"):
        return None if any(space._np_random for space in _spaces(value)) else repr(value)
    return None


def _unwritten(value: Any) -> str | None:
    """A description of data of a class that nobody writes in place, or that cannot be copied."""
    if isinstance(value, _IMMUTABLE) or type(value).__module__ == "typing":
        return repr(value)
    if isinstance(value, _SETS):
        parts = [str(_constant(part) or _unwritten(part) or "") for part in value]
        if all(parts):
            return f"{type(value).__name__} {parts if isinstance(value, tuple) else sorted(parts)}"
    return None


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _spaces(space: Any) -> Iterator[Any]:
    """A space, and those inside of it."""
    yield space
    parts = getattr(space, "spaces", ())
    for part in parts.values() if isinstance(parts, dict) else parts:
        yield from _spaces(part)
