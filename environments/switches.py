"""Switches of environments: keyword arguments, which may also follow an id as text.

Text is read by the type of its parameter or of its default (`no` is False for a bool); without
either, it is a Python literal, one of the words below, or a string.
"""

import ast
import functools
import inspect
import math
import numbers
import types
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_origin

import numpy as np

from ..basics.validation import split_type

BSUITE_PREFIX, CONTROL_PREFIX = "bsuite:", "dm_control:"  # ids begin so
COMMON = frozenset({"num_envs", "seed"})  # arguments of every environment, so never switches

_BOOLS = dict.fromkeys(("true", "yes", "on", "1"), True)
_BOOLS |= dict.fromkeys(("false", "no", "off", "0"), False)
_WORDS = {"true": True, "false": False, "none": None, "null": None, "nan": math.nan}
_WORDS |= {sign + x: float(sign + x) for sign in ("", "+", "-") for x in ("inf", "infinity")}
NAMES: dict[type, str] = {bool: "True or False", int: "an integer", float: "a finite number"}
NAMES |= {str: "text", type(None): "None"}


class Text(str):
    """The value of a switch as it stands in an id, to be read by `values`."""


def split(id: str) -> tuple[str, dict[str, Any]]:
    """Separates an id, such as "deep_sea,size=20,screen=4", from the `Text` of its switches."""
    id, *assignments = id.split(",")
    switches: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not (name and equals and value):
            raise ValueError(
                f"a switch after an id must be NAME=VALUE, as in deep_sea,size=20, got "
                f"{assignment!r} after {id}."
            )
        switches[name] = Text(value)
    return id, switches


def values(
    switches: Mapping[str, Any],
    function: Callable[..., Any],
    id: str,
    *,
    defaults: Mapping[str, Any] = types.MappingProxyType({}),
    evaluation: bool = False,
    strict: bool = False,
    hidden: str = "",
) -> dict[str, Any]:
    """The values of switches, which are parameters of a function: `Text` is read by their types.

    `COMMON` and a `hidden` one are no switches; `defaults` are of those that the function does not
    name, or others. In an `evaluation`, those are left out that its attribute `training_only`
    names. If `strict`, values must be of the types of its annotations.
    """
    maker = function.func if isinstance(function, functools.partial) else function
    dropped = getattr(maker, "training_only", ()) if evaluation else ()
    if isinstance(dropped, str):
        raise ValueError(f"{id}: training_only must be a tuple of switches, got {dropped!r}.")
    read: dict[str, Any] = {}
    try:
        found = inspect.signature(function, eval_str=True).parameters
    except Exception:  # an annotation that names what is imported for type checkers alone
        found = inspect.signature(function).parameters
    known = (parameters(function) | defaults.keys()) - COMMON - {hidden}
    unknown = sorted(switches.keys() - known)
    if unknown and not any(each.kind is each.VAR_KEYWORD for each in found.values()):
        allowed = ", ".join(sorted(known)) or "none"
        raise ValueError(f"{id} has no switch {', '.join(unknown)}; its switches are: {allowed}.")
    for name, value in switches.items():
        wanted = _types(found.get(name), defaults.get(name))
        if isinstance(value, Text):
            value = _read(value, wanted)
            if bool in wanted and not any(is_a(value, kind) for kind in wanted):
                raise ValueError(f"{id}: {name} must be True or False, got {switches[name]!r}.")
        if strict and wanted and not any(is_a(value, kind) for kind in wanted):
            allowed = " or ".join(NAMES[kind] for kind in wanted)
            raise ValueError(f"{id}: {name} must be {allowed}, got {value!r}.")
        read[name] = value
    return {name: value for name, value in read.items() if name not in dropped}


def parameters(function: Callable[..., Any]) -> set[str]:
    """The names of the parameters of a function or a class that can be given by name."""
    found = inspect.signature(function).parameters.values()
    return {
        each.name for each in found if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }


def _types(parameter: inspect.Parameter | None, default: Any) -> tuple[type, ...]:
    """The types of a parameter or of its default, of those in `NAMES`; empty if others too."""
    if parameter is not None:
        found = split_type(parameter.annotation)
        is_union = get_origin(found.type) in (Union, types.UnionType)
        hinted = get_args(found.type) if is_union else (found.type,)
        hinted = tuple(dict.fromkeys((*hinted, *[type(None)] * found.optional)))
        if all(kind in NAMES for kind in hinted):
            return hinted
        if default is None and parameter.default is not parameter.empty:
            default = parameter.default
    return (type(default),) if default is not None and type(default) in NAMES else ()


def _read(text: Text, wanted: tuple[type, ...]) -> Any:
    word = text.lower()
    if bool in wanted and int not in wanted and word in _BOOLS:
        return _BOOLS[word]
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = str(text) if str in wanted else _WORDS.get(word, str(text))
    if str in wanted:
        is_none = word in ("none", "null") and type(None) in wanted
        return None if is_none else value if isinstance(value, str) else str(text)
    if int in wanted and float not in wanted and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e6
    return value


def is_a(value: Any, kind: type) -> bool:
    """Whether a value is of a type, NumPy's numbers included; a bool is not a number."""
    if kind is bool or isinstance(value, bool | np.bool_):
        return kind is bool and isinstance(value, bool | np.bool_)
    if kind is float:
        return isinstance(value, numbers.Real) and math.isfinite(value)
    return isinstance(value, numbers.Integral if kind is int else kind)
