"""Run directories, and config.json in them: written with a version, read without guesses.

A field that is missing could mean anything: the class's default is not the preset's, and neither
need be what the run was trained with. So missing and unknown fields are refused.
"""

import dataclasses
import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..agents.entry import find_agent
from ..basics.writing import write_json
from ..runtime.run_config import RunConfig
from .directory_lock import LOCK

PROGRAM = "program.json"  # in the run directory of a program
VERSION = 1


def values_of(run: Any) -> dict[str, Any]:
    """What config.json holds of a run: JSON values."""
    return {"version": VERSION, **dataclasses.asdict(run)}


def _run_of(values: Any) -> RunConfig:
    """The inverse of `values_of`, from parsed JSON.

    Raises:
      ValueError: it is of another version, or fields are missing or unknown; names all of them.
    """
    values = {**_object(values, "config.json")}
    version = values.pop("version", None)
    if not (type(version) is int and version == VERSION):
        raise ValueError(f"its version must be {VERSION}, got {version!r}")
    problems, config_class = _problems(RunConfig, values), type(None)
    if {"agent", "search_path", "agent_config"} <= values.keys():
        place = Path(values["search_path"] or ".")
        config_class = find_agent(values["agent"], search_path=place).Config
        given = _object(values["agent_config"], "agent_config")
        problems += _problems(config_class, given, "agent_config.")
    if problems:
        raise ValueError("; ".join(problems))
    config = _build(config_class, values["agent_config"])
    return RunConfig(**{**_fields(RunConfig, values), "agent_config": config})


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


def new_directory(config: RunConfig) -> Path:
    """A directory under runs/ that is no other's: agent, environment, seed, time, random digits."""
    name = f"{config.agent}-{config.environment}-{config.seed}"
    name = "".join(c if c.isalnum() or c in "-_.,=" else "-" for c in name)
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"


def write_config(directory: Path, config: RunConfig) -> None:
    """Writes config.json, whole or not at all."""
    write_json(directory / "config.json", values_of(config))


def read_config(directory: Path) -> RunConfig:
    """Reads config.json.

    Raises:
      ValueError: the directory holds no run, its agent cannot be found, or its config does not fit
        this version: fields that are missing or unknown are named.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise ValueError(f"{directory} is not a run directory: it has no config.json.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return _run_of(values).anchored()
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged or of another version of retrax: {str(error).rstrip('.')}."
        ) from error


def check_new_directory(directory: Path, config: RunConfig) -> None:
    """Refuses a directory whose files would be overwritten.

    Raises:
      ValueError: it is a file, or holds a run or something else.
    """
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"The run directory {directory} is a file.")
    if not directory.exists() or all(path.name == LOCK for path in directory.iterdir()):
        return
    if not (directory / "config.json").exists():
        raise ValueError(f"The run directory {directory} is not empty, and holds no run.")
    changed = differences(read_config(directory), config)
    if changed:
        raise ValueError(
            f"{directory} holds a run with another config ({'; '.join(changed)}): choose another "
            "run directory."
        )
    command = "launch" if (directory / PROGRAM).exists() else "train"
    raise ValueError(f"{directory} holds this run already: retrax {command} --resume {directory}")


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Where two configs differ, as "field: old -> new", nested fields with their path."""
    found = []
    for field in dataclasses.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if dataclasses.is_dataclass(before) and type(before) is type(after):
            found += differences(before, after, f"{prefix}{field.name}.")
        elif before != after:
            found.append(f"{prefix}{field.name}: {before} -> {after}")
    return found
