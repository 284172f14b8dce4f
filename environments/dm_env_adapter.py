"""Any dm_env environment, as a vector of them in arrival form."""

from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np

from ..datatypes import DEFAULT_LIMIT
from .failures import RefusedError, closed_on_error, drawn
from .mujoco import MujocoState
from .plain_data import Attributes
from .sequential import Result, SequentialVector, check_alike
from .spaces import convert


class DmEnvVector(SequentialVector):
    """E dm_env environments, stepped sequentially. `dm_env` has no seeds.

    A last discount of 0 is a termination, one of 1 a time limit.
    """

    def __init__(
        self, environments: Sequence[dm_env.Environment], *, max_episode_steps: int = DEFAULT_LIMIT
    ) -> None:
        with closed_on_error(environments):
            seen, taken = check_alike(environments, "observation_spec", "action_spec")
            converted = convert(seen, taken, max_episode_steps)
            super().__init__(*converted, len(environments), limit=max_episode_steps)
            self._environments = list(environments)
            if hasattr(environments[0], "control_timestep"):
                self.frames_per_second = 1.0 / environments[0].control_timestep()

    def render(self) -> np.ndarray:
        """A picture of the first environment, if it has a method `render`."""
        environment = self._environments[0]
        if not hasattr(environment, "render"):
            raise RefusedError(f"{type(environment).__name__} has no method render() to draw with.")
        return drawn(environment.render)

    def _begin(self, e: int) -> Any:
        return self._environments[e].reset().observation

    def _advance(self, e: int, action: np.ndarray) -> Result:
        timestep = self._environments[e].step(action)
        last, discount = timestep.last(), timestep.discount
        if discount != 1 and not (last and discount == 0):
            raise RefusedError(
                f"the discount of environment {e} at step {self._num_steps} is {discount}; it must "
                "be 1, or 0 on a last step."
            )
        terminated = last and discount == 0
        return timestep.observation, timestep.reward, terminated, last and not terminated

    def _parts(self, e: int) -> list[Attributes | MujocoState]:
        return [Attributes(self._environments[e])]
