"""A trained agent: its functions with parameters, and a policy that keeps its own state."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType

from ..datatypes import EnvironmentSpec, TimeStep
from .base import ActorState, Agent, Params


@dataclasses.dataclass(eq=False)
class TrainedAgent:
    """The agent of a run, ready to act.

    `act` is its greedy policy for one environment that you step yourself. For many environments,
    `begin` gives an actor state and `agent.exploit(params, state, timestep)` a decision; both may
    be jitted and vmapped.

    Attributes:
      agent: the agent.
      params: acting parameters of the snapshot.
      spec: of the environment.
      config: the `RunConfig` of the run.
      steps: training steps of the snapshot.
      actors: the states of all actors, `[num_envs, ...]`, if the agent's entry has a `warm_start`.
        Of the snapshot, or the newest ones of a program, whose actors keep their own.
      see: converts an observation of the environment's library to the spec.
      take: converts an action of the spec to the library's.
    """

    agent: Agent
    params: Params
    spec: EnvironmentSpec
    config: Any
    steps: int
    actors: ActorState
    see: Callable[[Any], np.ndarray]
    take: Callable[[np.ndarray], Any]

    def __post_init__(self) -> None:
        self._exploit, self._state, self._starts = jax.jit(self.agent.exploit), None, True

    def begin(self, key: jax.Array) -> ActorState:
        """The state of one actor before its first time step."""
        state, warm_start = self.agent.begin(key, jnp.int32(0), 1), self.config.entry.warm_start
        return state if warm_start is None else warm_start(state, self.actors)

    def reset(self) -> None:
        """Ends the episode of `act`: its next observation is the first of the next one."""
        self._starts = True

    def act(self, observation: Any, reward: float = 0.0) -> Any:
        """The evaluation action for an observation, both in the form of the environment's library.

        Between calls the policy keeps its recurrent state.

        Args:
          observation: as the environment of the run returns it, which may be a dictionary.
          reward: the one that arrived with it. Agent57 reads it, the other agents do not.

        Raises:
          ValueError: the observation is not one of the environment's.
        """
        if self._state is None:
            self._state = self.begin(jax.random.key(0))
        kind, reward = (StepType.FIRST, 0.0) if self._starts else (StepType.MID, reward)
        numbers = np.int32(kind), np.float32(reward), np.float32(1.0)
        timestep = TimeStep(*numbers, self.see(observation))
        decision = self._exploit(self.params, self._state, timestep)
        self._state, self._starts = decision.state, False
        return self.take(np.asarray(decision.action))
