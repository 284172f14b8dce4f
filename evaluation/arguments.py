"""Arguments of public functions, checked against their signatures."""

import functools
import inspect
import numbers
import os
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import numpy as np

from ..basics.validation import split_type

_KINDS: dict[Any, tuple[Any, str]] = {
    bool: ((bool, np.bool_), "True or False"),
    int: (numbers.Integral, "an integer"),
    str: (str, "text"),
    Path: ((str, os.PathLike), "a path"),
    type(None): (type(None), "None"),
}

Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """Refuses arguments whose types differ from the signature's, or that are out of its bounds.

    "episodes must be an integer >= 1, got 2.5." is a ValueError.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        for name, value in signature.bind(*arguments, **named).arguments.items():
            hint, bounds, is_optional = split_type(signature.parameters[name].annotation)
            is_allowed, words = _test(hint | None if is_optional else hint, bounds)
            if not is_allowed(value):
                raise ValueError(f"{name} must be {words}, got {value!r:.80}.")
        return function(*arguments, **named)

    return call  # type: ignore[return-value]


def _test(hint: Any, bounds: Any = None) -> tuple[Callable[[Any], bool], str]:
    """Whether a value is of a type, as a function and in words; True for types of other kinds."""
    members, origin = get_args(hint), get_origin(hint)
    if origin in (Union, types.UnionType):
        tests = [_test(x, bounds) for x in members if not (x is str and Path in members)]
        words = " or ".join(words for _, words in tests)
        return lambda value: any(test(value) for test, _ in tests), words
    if origin is Iterable:
        return lambda value: isinstance(value, Iterable), "an iterable"
    if origin is Sequence:
        test, each = _test(members[0])

        def is_many(value: Any) -> bool:
            is_list = isinstance(value, Collection) and not isinstance(value, (str, bytes))
            return isinstance(value, Iterator) or (is_list and all(map(test, value)))

        return is_many, f"a list of {each.removeprefix('a ') or 'text'}s"
    if origin is not None or hint is Any or not isinstance(hint, type):
        return lambda value: True, ""
    kind, words = _KINDS.get(hint, (hint, f"of type {hint.__name__}"))
    bounds = bounds if hint is int else None

    def is_one(value: Any) -> bool:
        is_kind = isinstance(value, kind) and not (hint is int and isinstance(value, bool))
        return is_kind and (bounds is None or value in bounds)

    return is_one, f"{words} {bounds}" if bounds else words
