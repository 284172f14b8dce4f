"""Records emulator states from an agent's episodes, as start states of later episodes."""

from collections.abc import Callable

import dm_env
import numpy as np

from ..datatypes import TimeStep


class StateRecorder:
    """Records one state of each episode in one environment; `before_step` of `run_episodes`.

    The state is uniformly distributed over the episode's time steps except the last one (reservoir
    sampling: the k-th state replaces the recorded one with probability 1 / k).

    Attributes:
      states: the recorded state of each episode, in order.

    Args:
      state: returns the environment's state.
      generator: draws the time steps.
    """

    def __init__(self, state: Callable[[], bytes], generator: np.random.Generator) -> None:
        self._state, self._generator, self._moments = state, generator, 0
        self.states: list[bytes] = []

    def __call__(self, timestep: TimeStep) -> None:
        """Watches a time step `[1, ...]`."""
        kind = timestep.step_type[0]
        if kind == dm_env.StepType.LAST:
            return
        if kind == dm_env.StepType.FIRST:
            self._moments = 0
            self.states.append(b"")
        self._moments += 1
        if self._generator.integers(self._moments) == 0:
            self.states[-1] = self._state()
