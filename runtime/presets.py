"""Presets of agents: which one an environment gets, what the log says of it, and its steps."""

from typing import Any

import numpy as np
from dm_env import specs

from ..agents.entry import AgentEntry
from ..basics.sentences import did_you_mean
from ..datatypes import EnvironmentSpec


def default_preset(entry: AgentEntry, environment: str, spec: EnvironmentSpec) -> str:
    """The preset for an environment: the entry's choice, or its first one."""
    if entry.default_preset is None:
        return next(iter(entry.presets))
    return entry.default_preset(environment, spec)


def describe_default_preset(entry: AgentEntry, environment: str, spec: EnvironmentSpec) -> str:
    """A sentence for the log: what the environment is, and the preset that is its default."""
    shape, actions = spec.observations.shape, spec.actions
    kind = "images" if spec.observations.dtype == np.uint8 else "arrays"
    if isinstance(actions, specs.DiscreteArray):
        choice = f"{actions.num_values} discrete actions"
    else:
        choice = f"continuous actions of shape {actions.shape}"
    if spec.max_episode_steps is not None:
        choice += f" and episodes of at most {spec.max_episode_steps} steps"
    return (
        f"Observations are {kind} of shape {shape}, with {choice}: the default preset of "
        f"{entry.name} for them is {default_preset(entry, environment, spec)}."
        f"{spec.note and ' '}{spec.note}"
    )


def preset_config(entry: AgentEntry, preset: str) -> Any:
    """The config of a preset.

    Raises:
      ValueError: names the preset, and those that exist.
    """
    if preset not in entry.presets:
        hint = did_you_mean(preset, entry.presets)
        raise ValueError(
            f"Unknown preset {preset!r} of {entry.name}{hint}: allowed "
            f"are {', '.join(sorted(entry.presets))}."
        )
    return entry.presets[preset]()


def default_steps(entry: AgentEntry, environment: str, preset: str) -> int:
    """The time steps of a run whose steps were not given.

    Raises:
      ValueError: the entry has no default.
    """
    if entry.default_steps is None:
        raise ValueError(f"{entry.name} has no default number of steps: give steps.")
    return entry.default_steps(environment, preset)
