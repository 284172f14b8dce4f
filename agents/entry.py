"""What an agent package offers to the harness, and how packages are found."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from dm_env import specs

from ..basics.imports import import_from, registered, registered_names
from ..basics.sentences import did_you_mean
from ..datatypes import EnvironmentSpec, ReplayConfig
from .base import ActorState, Agent

GROUP = "retrax.agents"  # of entry points


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentEntry:
    """One agent, as the commands and the programs see it.

    Registered under the entry point group `retrax.agents`, or named as `package.module:NAME`; see
    `find_agent`.

    Attributes:
      name: the agent's name in messages and run directories.
      make_agent: `(EnvironmentSpec, Config) -> Agent`; `override` binds its keyword arguments.
      Config: a frozen dataclass of hyper-parameters with defaults; nested dataclasses, numbers,
        strings, bools, None and tuples of these, so that it is written as JSON.
      presets: named configs, at least one; the first is the default where `default_preset` is None.
      default_preset: `(environment id, EnvironmentSpec) -> name`.
      default_steps: `(environment id, preset) -> time steps` of a run, over all environments.
      replay: `Config -> ReplayConfig`.
      episode_metrics: names of scalar extras whose value on an episode's last row is logged as
        `episode_NAME`.
      evaluation_policy: `Config -> words`: what `Agent.exploit` acts by; evaluations report it.
      evaluation_modes: names of bool scalars that `Agent.exploit` adds to its extras. Evaluations
        report separately the episodes on whose last row they are true.
      warm_start: `(state of a new evaluator, states of all actors [E, ...]) -> state of the
        evaluator`, not batched over evaluators: initialises the evaluator of a saved run from the
        states of the run's actors. None: `Agent.begin` makes the evaluator's state.
      with_arm: `(Config, arm) -> Config` whose `Agent.exploit` follows one of the agent's policies
        only, numbered from 0; raises `ValueError` if there is no such arm. None: the agent has no
        arms.
      advice: `(Config, metrics) -> sentence or None`, called with the means of each log row; its
        first sentence is logged as a warning: what the metrics show to be wrong, and what to set.
    """

    name: str
    make_agent: Callable[..., Agent]
    Config: type[Any]
    presets: Mapping[str, Callable[[], Any]]
    default_preset: Callable[[str, EnvironmentSpec], str] | None = None
    default_steps: Callable[[str, str], int] | None = None
    replay: Callable[[Any], ReplayConfig] = lambda config: config.replay
    episode_metrics: tuple[str, ...] = ()
    evaluation_policy: Callable[[Any], str] | None = None
    evaluation_modes: tuple[str, ...] = ()
    warm_start: Callable[[ActorState, ActorState], ActorState] | None = None
    with_arm: Callable[[Any, int], Any] | None = None
    advice: Callable[[Any, Mapping[str, float]], str | None] | None = None

    def __post_init__(self) -> None:
        if not self.presets:
            raise ValueError(f"AgentEntry.presets of {self.name!r} must have at least one preset.")

    def override(self, name: str, **options: Any) -> "AgentEntry":
        """The same agent under another name, with keyword arguments of `make_agent` bound.

        Args:
          name: of the new entry.
          **options: such as `network` or `optimizer` (each agent's `make_agent` lists its own), or
            `wrap`, `(agent, config) -> agent`, for every agent of this package.
        """
        make_agent = functools.partial(self.make_agent, **options)
        return dataclasses.replace(self, name=name, make_agent=make_agent)

    def preset_of(self, environment: str, spec: EnvironmentSpec) -> str:
        """The preset for an environment: `default_preset`'s choice, or the first one."""
        if self.default_preset is None:
            return next(iter(self.presets))
        return self.default_preset(environment, spec)

    def describe_preset(self, environment: str, spec: EnvironmentSpec) -> str:
        """A sentence for the log: what the environment is, and the preset for it."""
        shape, actions = spec.observations.shape, spec.actions
        kind = "images" if spec.observations.dtype == np.uint8 else "arrays"
        if isinstance(actions, specs.DiscreteArray):
            choice = f"{actions.num_values} discrete actions{' with a mask' * spec.masks_actions}"
        else:
            choice = f"continuous actions of shape {actions.shape}"
        if spec.max_episode_steps is not None:
            choice += f" and episodes of at most {spec.max_episode_steps} steps"
        return (
            f"Observations are {kind} of shape {shape}, with {choice}: the default preset of "
            f"{self.name} for them is {self.preset_of(environment, spec)}."
            f"{spec.note and ' '}{spec.note}"
        )

    def config_of(self, preset: str) -> Any:
        """The config of a preset.

        Raises:
          ValueError: names the preset, and those that exist.
        """
        if preset not in self.presets:
            hint = did_you_mean(preset, self.presets)
            raise ValueError(
                f"Unknown preset {preset!r} of {self.name}{hint}: allowed "
                f"are {', '.join(sorted(self.presets))}."
            )
        return self.presets[preset]()

    def steps_of(self, environment: str, preset: str) -> int:
        """The time steps of a run whose steps were not given.

        Raises:
          ValueError: there is no default.
        """
        if self.default_steps is None:
            raise ValueError(f"{self.name} has no default number of steps: give steps.")
        return self.default_steps(environment, preset)

    def checked(self, config: Any) -> Any:
        """A config, if it is one of the agent's whose values config.json can hold.

        Raises:
          ValueError: it is not; says of what class it must be, or what its value is.
        """
        if not isinstance(config, self.Config):
            raise ValueError(
                f"RunConfig.agent_config must be a {self.Config.__module__}."
                f"{self.Config.__qualname__} or None for {self.name}, got {config!r}."
            )
        try:
            json.dumps(dataclasses.asdict(config))
        except TypeError as error:
            raise ValueError(
                f"agent_config of {self.name} must have values of JSON and tuples: {error}."
            ) from error
        return config


def agent_names() -> list[str]:
    """The names of all registered agents, sorted; no agent is imported."""
    return registered_names(GROUP)


def find_agent(name: str, *, search_path: Path | None = None) -> AgentEntry:
    """Finds an agent by its name; imports this agent only.

    Args:
      name: an entry point of the group `retrax.agents` ("reactor"), or `package.module:NAME`: the
        attribute NAME of a module.
      search_path: the directory from which that module may be imported, besides the Python path;
        the current directory when None.

    Raises:
      ValueError: the name is unknown or registered more than once, the module cannot be imported or
        has no such attribute, or what it names is not an `AgentEntry`.
    """
    found = _attribute(name, search_path) if ":" in name else _registered(name)
    if not isinstance(found, AgentEntry):
        raise ValueError(f"{name} must be an AgentEntry; its type is {type(found).__name__}.")
    return found


def _registered(name: str) -> Any:
    found = registered(GROUP, name)
    if found is None:
        names = agent_names()
        known = f"; registered are {', '.join(names)}" if names else ""
        raise ValueError(
            f"unknown agent {name!r}{did_you_mean(name, names)}{known}; an agent of your own is "
            "given as package.module:NAME."
        )
    return found


def _attribute(name: str, search_path: Path | None) -> Any:
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute):
        raise ValueError(f"an agent must be given as NAME or package.module:NAME, got {name!r}.")
    module = import_from(module_name, search_path)
    if not hasattr(module, attribute):
        entries = [key for key, value in vars(module).items() if isinstance(value, AgentEntry)]
        known = f"its agents are {', '.join(entries)}" if entries else "it has no AgentEntry"
        raise ValueError(f"module {module_name!r} has no attribute {attribute!r}; {known}.")
    return getattr(module, attribute)
