"""Records emulator states from an agent's episodes, as start states of later episodes."""

from typing import Any

import dm_env
import numpy as np

from ..datatypes import TimeStep
from ..environments.emulated_atari import EmulatedAtari


class StateRecorder:
    """An emulated Atari game that records one state of each episode.

    The state is uniformly distributed over the episode's time steps except the last one (reservoir
    sampling: the k-th state replaces the recorded one with probability 1 / k).

    Attributes:
      states: the recorded state of each episode that has ended, in order.

    Args:
      environment: exactly one; another number is a ValueError.
      generator: draws the time steps.
    """

    def __init__(self, environment: EmulatedAtari, generator: np.random.Generator) -> None:
        if environment.num_envs != 1:
            raise ValueError(f"environment must be one, got {environment.num_envs}.")
        self._environment, self._generator = environment, generator
        self._moments, self._kept = 0, b""
        self.states: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def reset(self) -> TimeStep:
        """See `VectorEnvironment`; no state of an unfinished episode is recorded."""
        return self._watch(self._environment.reset())

    def step(self, actions: np.ndarray) -> TimeStep:
        """See `VectorEnvironment`."""
        return self._watch(self._environment.step(actions))

    def _watch(self, timestep: TimeStep) -> TimeStep:
        kind = timestep.step_type[0]
        if kind == dm_env.StepType.LAST:
            self.states.append(self._kept)
            return timestep
        self._moments = 1 if kind == dm_env.StepType.FIRST else self._moments + 1
        if self._generator.integers(self._moments) == 0:
            self._kept = self._environment.emulator_state()
        return timestep
