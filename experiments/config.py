"""What a run is: agent, environment, seed and sizes; how it is chosen, written and read."""

import dataclasses
import difflib
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .._validation import check_integer
from ..environments import EnvironmentSpec

# From the agent's name to its package: `make_agent`, `Config`, `PRESETS` and `default_preset`.
AGENTS = {
    "acer": "retrax.agents.acer",
    "agent57": "retrax.agents.agent57",
    "d4pg": "retrax.agents.d4pg",
    "reactor": "retrax.agents.reactor",
}

# Time steps after which the preset `small` has solved the task (docs/results); others get the rest.
SMALL_STEPS = {
    "acer": {"catch": 40_000, "CartPole-v1": 60_000, "Pendulum-v1": 100_000},
    "reactor": {"catch": 20_000, "memory": 20_000, "CartPole-v1": 60_000},
    "d4pg": {"Pendulum-v1": 40_000},
    "agent57": {"deep_sea": 60_000, "memory": 20_000},
}
OTHER_STEPS = 200_000
# Purposes of other seeds than the run's own: no two may share their episodes.
EVALUATION, RESUME = 1, 2
PROGRAM = "program.json"  # in the run directory of a program of many processes
_MAX_SEED = 2**32 - 1  # JAX ignores all bits beyond
SUITE_STEPS = 1_000_000  # of the control suite: ours, the paper takes a hundred times as many
PAPER_STEPS = 50_000_000  # 200 million frames with four action repeats (Reactor, section 4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run in one process, as config.json keeps it."""

    agent: str
    environment: str
    preset: str
    steps: int
    seed: int
    num_envs: int
    snapshot_every: int
    log_every: int
    agent_config: Any

    def __post_init__(self) -> None:
        check_integer(self, "steps", 1)
        check_integer(self, "seed", 0, _MAX_SEED)
        check_integer(self, "num_envs", 1)
        check_integer(self, "snapshot_every", 1)
        check_integer(self, "log_every", 1)


def agent_package(agent: str) -> ModuleType:
    """The package of an agent.

    Raises:
      ValueError: names the agent, and those that there are.
    """
    if agent not in AGENTS:
        raise ValueError(
            f"Unknown agent {agent!r}{nearest(agent, AGENTS)}: allowed are {_list(AGENTS)}."
        )
    return importlib.import_module(AGENTS[agent])


def preset_config(agent: str, preset: str) -> Any:
    """The config that a preset stands for.

    Raises:
      ValueError: names the preset, and those that there are.
    """
    presets = agent_package(agent).PRESETS
    if preset not in presets:
        raise ValueError(
            f"Unknown preset {preset!r} of {agent}{nearest(preset, presets)}: allowed are "
            f"{_list(presets)}."
        )
    return presets[preset]()


def default_preset(agent: str, environment: str, spec: EnvironmentSpec) -> str:
    """The preset that the agent's package has for such an environment."""
    preset: str = agent_package(agent).default_preset(environment, spec)
    return preset


def default_steps(agent: str, environment: str, spec: EnvironmentSpec) -> int:
    """Time steps that solve the task with its default preset, where that is known."""
    preset = default_preset(agent, environment, spec)
    if not preset.startswith("small"):
        return SUITE_STEPS if preset == "control_suite" else PAPER_STEPS
    return SMALL_STEPS.get(agent, {}).get(environment, OTHER_STEPS)


def write_config(directory: Path, config: RunConfig) -> None:
    """Writes config.json, whole or not at all."""
    text = json.dumps(dataclasses.asdict(config), indent=2)
    partial = directory / "config.json.partial"
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(directory / "config.json")


def read_config(directory: Path) -> RunConfig:
    """Reads config.json.

    Raises:
      ValueError: the directory holds no run, or its config does not fit this version.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise ValueError(f"{directory} is not a run directory: it has no config.json.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        config_class = agent_package(values["agent"]).Config
        values["agent_config"] = _build(config_class, values["agent_config"])
        return RunConfig(**values)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{path} is damaged or of another version of retrax: {reason.rstrip('.')}."
        ) from error


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


def derive_seed(seed: int, *purpose: int) -> int:
    """Another seed for another purpose, unrelated to the first (zeros at the end do not count)."""
    return int(np.random.SeedSequence([seed, *purpose]).generate_state(1)[0])


def nearest(name: str, known: Any) -> str:
    """A hint " (did you mean ...?)", or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else ""


def _build(config_class: type, values: dict[str, Any]) -> Any:
    """The inverse of `dataclasses.asdict` and JSON, for nested configs and tuples."""
    defaults = {field.name: field.default for field in dataclasses.fields(config_class)}
    unknown = sorted(set(values) - set(defaults))
    if unknown:
        raise ValueError(f"{config_class.__name__} has no field {unknown[0]}")
    restored = {
        name: _build(type(defaults[name]), value)
        if dataclasses.is_dataclass(defaults[name])
        else _tuples(value)
        for name, value in values.items()
    }
    return config_class(**restored)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _list(names: Any) -> str:
    return ", ".join(sorted(names))
