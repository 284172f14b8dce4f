"""The fields of config.json: written with a version, read without guesses.

A field that is missing could mean anything: the class's default is not the preset's, and neither
need be what the run was trained with. So missing and unknown fields are refused, unless a migration
knows what their absence meant in the version that wrote the file.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from .workers.options import WorkerOptions

VERSION = 9
# Version 0 is a file without a version. These fields were added before there were versions; what
# older files meant is known.
_ADDED_TO_RUN = {
    "search_path": "",
    "keep_snapshots": 2,
    "evaluate_every": 0,
    "evaluation_episodes": 20,
}
_ADDED_TO_RUN_OF_ONE_PROCESS = {"num_actors": 1, "actor_update_period": None}
# Fields of agents, by the version that added them, with what their absence meant before. Version 2,
# of Agent57: novelty was never forgotten before, and "arm_0" was a choice of its own.
_ADDED_TO_AGENT: dict[int, dict[str, Any]] = {
    1: {"frame_stack": 1, "scale_rewards": False, "noise_correlation": 0.0},
    2: {"novelty_window": 1_000_000_000, "evaluation_arm": 0},
    5: {"exploit_average": False},
    7: {"preactivation_cost": 0.0},
    8: {"intrinsic_rewards": "stored", "evaluation_average_decay": 0.0},
}
# Fields that a version removed, with the value that learns as their absence does; another value is
# refused as unknown. Version 6 alone had this one, of D4PG.
_REMOVED_FROM_AGENT: dict[int, dict[str, Any]] = {7: {"inverting_gradients": False}}
_ADDED_TO_REPLAY = {
    "capacity_per_environment": False,
    "updates_per_call": 1,
    "pace": "steady",
    "replay_ratio": 4.0,
    "on_policy": False,
}
_ADDED_TO_RUN_IN_2 = {"learner_devices": 1}
_RENAMED_IN_2 = {"evaluation": {"arm_0": "arm"}}
# Version 3, and what version 4 added to these options.
_ADDED_TO_RUN_IN_3 = {"workers": dataclasses.asdict(WorkerOptions())}
_ADDED_TO_RUN_IN_9 = {"on_device": False}
_ADDED_TO_WORKERS_IN_4 = {"decoupled": False}


def values_of(run: Any) -> dict[str, Any]:
    """What config.json holds of a run: JSON values."""
    return {"version": VERSION, **dataclasses.asdict(run)}


def run_fields(
    values: Any, run_class: type, agent_class: Callable[[str, str], type], *, is_program: bool
) -> dict[str, Any]:
    """The arguments of `run_class`, from what config.json holds.

    Args:
      values: parsed JSON.
      run_class: `RunConfig`.
      agent_class: from `agent` and `search_path` to the class of `agent_config`.
      is_program: whether the run is a program of many processes.

    Raises:
      ValueError: it is of a later version, or fields are missing or unknown; names all of them.
    """
    values = {**_object(values, "config.json")}
    version = values.pop("version", 0)
    if not (type(version) is int and 0 <= version <= VERSION):
        raise ValueError(f"its version is {version!r}, and the newest known one is {VERSION}")
    if version == 0:
        added = _ADDED_TO_RUN if is_program else {**_ADDED_TO_RUN, **_ADDED_TO_RUN_OF_ONE_PROCESS}
        values = {**added, **values}
    if version < 2:
        values = {**_ADDED_TO_RUN_IN_2, **values}
    if version < 3:
        values = {**_ADDED_TO_RUN_IN_3, **values}
    if version < 9:
        values = {**_ADDED_TO_RUN_IN_9, **values}
    if version == 3 and isinstance(values.get("workers"), dict):
        values["workers"] = {**_ADDED_TO_WORKERS_IN_4, **values["workers"]}
    problems = _problems(run_class, values)
    if {"agent", "search_path", "agent_config"} <= values.keys():
        config_class = agent_class(values["agent"], values["search_path"])
        given = _object(values["agent_config"], "agent_config")
        given = _with_fields_of_today(given, config_class, version)
        if version == 0 and isinstance(given.get("replay"), dict):
            given["replay"] = {**_ADDED_TO_REPLAY, **given["replay"]}
        if version < 2:
            for name, renamed in _RENAMED_IN_2.items():
                if name in given:
                    given[name] = renamed.get(given[name], given[name])
        problems += _problems(config_class, given, "agent_config.")
        values["agent_config"] = None if problems else _build(config_class, given)
    if problems:
        raise ValueError("; ".join(problems))
    if "workers" in values:
        values["workers"] = _build(WorkerOptions, values["workers"])
    return values


def _with_fields_of_today(
    given: Mapping[str, Any], config_class: type, version: int
) -> dict[str, Any]:
    """An agent's config with the fields that its class has gained, without those it has lost."""
    names = {field.name for field in dataclasses.fields(config_class)}
    given = {**given}
    for number, added in _ADDED_TO_AGENT.items():
        if version < number:
            given = {**{name: value for name, value in added.items() if name in names}, **given}
    for number, removed in _REMOVED_FROM_AGENT.items():
        if version < number:
            given = {k: v for k, v in given.items() if k in names or (k, v) not in removed.items()}
    return given


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
    defaults = {field.name: _default(field) for field in dataclasses.fields(config_class)}
    restored = {
        name: _build(type(defaults[name]), value)
        if dataclasses.is_dataclass(defaults[name])
        else _tuples(value)
        for name, value in values.items()
    }
    return config_class(**restored)


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
