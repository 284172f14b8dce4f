"""An agent as Acme's actor, and our environments as Acme's: `acme.EnvironmentLoop` runs them."""

from typing import Any

import acme
import dm_env
import jax
import numpy as np

from ..agents.base import Agent
from ..environments.types import VectorEnvironment
from ..replay.paced import Writer
from .parameters import ParameterClient


class Actor(acme.core.Actor):
    """One environment's actor: decides on every time step, last ones too, and writes the rows.

    Attributes:
      state: the agent's actor state; may be set, to go on from a snapshot.
      steps: transitions taken.
    """

    state: Any
    steps: int

    def __init__(
        self,
        agent: Agent,
        client: ParameterClient,
        *,
        key: jax.Array,
        writer: Writer | None,
        actor_id: int = 0,
        num_actors: int = 1,
    ):
        """Begins.

        Args:
          agent: whose `explore` (or, without a writer, `exploit`) is used.
          client: where the parameters come from; `client.wait()` before the first step.
          key: a PRNG key, for `agent.begin`.
          writer: where the rows go; None for an evaluator.
          actor_id: which of the program's environments this is.
          num_actors: how many there are.
        """
        raise NotImplementedError

    def compile(self, timestep: dm_env.TimeStep) -> None:
        """Compiles for time steps like this one (specs will do) before parameters are there."""

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        """See `acme.core.Actor`."""

    def select_action(self, observation: Any) -> np.ndarray:
        """See `acme.core.Actor`; the observation is that of the newest time step."""
        raise NotImplementedError

    def observe(self, action: Any, next_timestep: dm_env.TimeStep) -> None:
        """See `acme.core.Actor`."""

    def update(self, wait: bool = False) -> None:
        """See `acme.core.Actor`: takes over parameters that have arrived."""


class SingleEnvironment(dm_env.Environment):
    """A vector of one environment as a `dm_env.Environment`, time steps in arrival form."""

    def __init__(self, environment: VectorEnvironment):
        """Args: `environment`, with `num_envs` 1 (ValueError otherwise)."""
        raise NotImplementedError
