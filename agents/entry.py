"""What an agent package offers to the harness, and how packages are found."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from ..datatypes import EnvironmentSpec, ReplayConfig
from .base import ActorState, Agent


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentEntry:
    """One agent, as the commands and the programs see it.

    Registered under the entry point group `retrax.agents`, or named as `package.module:NAME`.

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
      evaluation_modes: names of bool scalars that `Agent.exploit` adds to its extras. Evaluations
        report separately the episodes on whose last row they are true.
      warm_start: `(state of a new evaluator, states of all actors [E, ...]) -> state of the
        evaluator`, not batched over evaluators: what a new evaluator of a saved run takes over from
        the run's actors, where that is more than `Agent.begin` knows. None takes over nothing.
    """

    name: str
    make_agent: Callable[..., Agent]
    Config: type
    presets: Mapping[str, Callable[[], Any]]
    default_preset: Callable[[str, EnvironmentSpec], str] | None = None
    default_steps: Callable[[str, str], int] | None = None
    replay: Callable[[Any], ReplayConfig] = lambda config: config.replay
    episode_metrics: tuple[str, ...] = ()
    evaluation_modes: tuple[str, ...] = ()
    warm_start: Callable[[ActorState, ActorState], ActorState] | None = None

    def override(self, name: str, **options: Any) -> "AgentEntry":
        """The same agent under another name, with keyword arguments of `make_agent` bound.

        Args:
          name: of the new entry.
          **options: such as `network`, `torso` or `optimizer`; each agent's `make_agent` lists its.
        """
        make_agent = functools.partial(self.make_agent, **options)
        return dataclasses.replace(self, name=name, make_agent=make_agent)
