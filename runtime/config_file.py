"""The fields of config.json: written with a version, read without guesses.

A field that is missing could mean anything: the class's default is not the preset's, and neither
need be what the run was trained with. So missing and unknown fields are refused.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

VERSION = 1


def values_of(run: Any) -> dict[str, Any]:
    """What config.json holds of a run: JSON values."""
    return {"version": VERSION, **dataclasses.asdict(run)}


def run_fields(
    values: Any, run_class: type, agent_class: Callable[[str, str], type]
) -> dict[str, Any]:
    """The arguments of `run_class`, from what config.json holds.

    Args:
      values: parsed JSON.
      run_class: `RunConfig`.
      agent_class: from `agent` and `search_path` to the class of `agent_config`.

    Raises:
      ValueError: it is of another version, or fields are missing or unknown; names all of them.
    """
    values = {**_object(values, "config.json")}
    version = values.pop("version", None)
    if not (type(version) is int and version == VERSION):
        raise ValueError(f"its version must be {VERSION}, got {version!r}")
    problems, config_class = _problems(run_class, values), run_class
    if {"agent", "search_path", "agent_config"} <= values.keys():
        config_class = agent_class(values["agent"], values["search_path"])
        given = _object(values["agent_config"], "agent_config")
        problems += _problems(config_class, given, "agent_config.")
    if problems:
        raise ValueError("; ".join(problems))
    config = _build(config_class, values["agent_config"])
    return {**_fields(run_class, values), "agent_config": config}


def _problems(config_class: type, values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The fields that are missing or unknown, nested ones included, in words."""
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    found = [f"{prefix}{name} is missing" for name in fields if name not in values]
    found += [f"{prefix}{name} is unknown" for name in values if name not in fields]
    for name, field in fields.items():
        if name in values and dataclasses.is_dataclass(default := _default(field)):
            inner = _object(values[name], prefix + name)
            found += _problems(type(default), inner, f"{prefix}{name}.")
    return found


def _build(config_class: type, values: Mapping[str, Any]) -> Any:
    """The inverse of `dataclasses.asdict` and JSON, for nested configs and tuples."""
    return config_class(**_fields(config_class, values))


def _fields(config_class: type, values: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {field.name: _default(field) for field in dataclasses.fields(config_class)}
    return {
        name: _build(type(defaults[name]), value)
        if dataclasses.is_dataclass(defaults[name])
        else _tuples(value)
        for name, value in values.items()
    }


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object with fields")
    return value


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
