"""States to begin episodes in, out of an agent's play."""

import dm_env
import numpy as np

from ..datatypes import EnvironmentSpec, TimeStep
from ..environments.emulated_atari import EmulatedAtari


class StateRecorder:
    """One emulated Atari game that keeps a state of each episode that is played in it.

    Each moment before an episode's last step is as likely to be kept as the others (reservoir
    sampling: the k-th moment replaces what is kept with probability 1 / k). To record, run episodes
    in it as in any other environment.

    Attributes:
      states: the state kept of each episode that has ended, in order.

    Args:
      environment: exactly one environment.
      generator: which moments are kept.

    Raises:
      ValueError: the environment is not exactly one.
    """

    def __init__(self, environment: EmulatedAtari, generator: np.random.Generator) -> None:
        if environment.num_envs != 1:
            raise ValueError(f"environment must be one, got {environment.num_envs}.")
        self._environment, self._generator = environment, generator
        self._moments, self._kept = 0, b""
        self.states: list[bytes] = []

    @property
    def num_envs(self) -> int:
        """1."""
        return 1

    @property
    def spec(self) -> EnvironmentSpec:
        """The spec of the environment."""
        return self._environment.spec

    def reset(self) -> TimeStep:
        """Starts an episode; the one that was going on leaves no state."""
        return self._watch(self._environment.reset())

    def step(self, actions: np.ndarray) -> TimeStep:
        """Takes actions `[1]` and returns the time step that follows, `[1, ...]`."""
        return self._watch(self._environment.step(actions))

    def render(self) -> np.ndarray:
        """A picture of the environment."""
        return self._environment.render()

    def close(self) -> None:
        """Closes the environment; the states stay."""
        self._environment.close()

    def _watch(self, timestep: TimeStep) -> TimeStep:
        kind = timestep.step_type[0]
        if kind == dm_env.StepType.LAST:
            self.states.append(self._kept)
            return timestep
        self._moments = 1 if kind == dm_env.StepType.FIRST else self._moments + 1
        if self._generator.integers(self._moments) == 0:
            self._kept = self._environment.state()
        return timestep
