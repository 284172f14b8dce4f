"""Switches of environments: keyword arguments, which may also follow an id as text."""

import ast
import inspect
from collections.abc import Callable, Iterable
from typing import Any

COMMON = frozenset({"num_envs", "seed"})  # arguments of every environment, so never switches


def split(id: str) -> tuple[str, dict[str, Any]]:
    """Separates an id from the switches that follow it.

    Args:
      id: such as "deep_sea,size=20,screen=4". Values are Python literals, or strings.

    Raises:
      ValueError: a switch is not NAME=VALUE.
    """
    id, *assignments = id.split(",")
    switches: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not (name and equals and value):
            raise ValueError(
                f"a switch after an id must be NAME=VALUE, as in deep_sea,size=20, got "
                f"{assignment!r} after {id}."
            )
        try:
            switches[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):  # a word
            switches[name] = value
    return id, switches


def parameters(function: Callable[..., Any]) -> set[str]:
    """The names of the parameters of a function or a class."""
    return set(inspect.signature(function).parameters)


def takes_any(function: Callable[..., Any]) -> bool:
    """Whether a function takes keyword arguments of any name."""
    found = inspect.signature(function).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in found)


def refuse_unknown(switches: dict[str, Any], known: Iterable[str] | None, id: str) -> None:
    """Refuses switches that an environment does not have.

    Args:
      switches: the given ones.
      known: the names that it has; None if it takes any.
      id: of the environment, for the error.

    Raises:
      ValueError: names the unknown switches and the known ones.
    """
    if known is None:
        return
    unknown = sorted(set(switches) - set(known))
    if unknown:
        allowed = ", ".join(sorted(known)) or "none"
        raise ValueError(f"{id} has no switch {', '.join(unknown)}; its switches are: {allowed}.")
