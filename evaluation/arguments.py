"""Arguments of public functions, checked against their signatures."""

import functools
import inspect
import os
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

from ..basics.validation import split_type
from ..environments.switches import NAMES, is_a

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
    if hint is Path:
        return lambda value: isinstance(value, str | os.PathLike), "a path"
    words = NAMES.get(hint, f"of type {hint.__name__}")
    if hint is int and bounds is not None:
        return lambda value: is_a(value, int) and value in bounds, f"{words} {bounds}"
    return lambda value: is_a(value, hint), words
