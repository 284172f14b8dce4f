"""What an environment promises: specs, time steps in arrival form, and a vector of environments.

`E` denotes the number of environments that are stepped together.
"""

from typing import NamedTuple, Protocol, TypeAlias

import dm_env
import numpy as np
from dm_env import specs

# A time step in arrival form: `reward` and `discount` arrived with `observation`. All four fields
# are arrays: `step_type` int32 (`dm_env.StepType`), `reward` and `discount` float32. On a first
# step the reward is 0 and the discount 1. The discount is 0 only on termination: a last step that
# was cut off by a time limit keeps 1.
TimeStep: TypeAlias = dm_env.TimeStep

ActionSpec: TypeAlias = specs.DiscreteArray | specs.BoundedArray


class EnvironmentSpec(NamedTuple):
    """What one environment (not a vector of them) takes and gives.

    Attributes:
      observations: one array: a uint8 image `[height, width, channels]` or a float32 array.
      actions: `DiscreteArray` (int32 scalars 0 .. num_values - 1) or a float32 `BoundedArray`.
      rewards: a float32 scalar.
      discounts: a float32 scalar in [0, 1].
    """

    observations: specs.Array
    actions: ActionSpec
    rewards: specs.Array = specs.Array((), np.float32, "reward")
    discounts: specs.BoundedArray = specs.BoundedArray((), np.float32, 0.0, 1.0, "discount")


class VectorEnvironment(Protocol):
    """`E` environments, stepped together; each starts its next episode by itself.

    The step after a last step ignores the action given for that environment and returns the first
    step of its next episode (as in `dm_env`). All arrays have a leading axis `E`.
    """

    @property
    def num_envs(self) -> int:
        """The number of environments E."""
        ...

    @property
    def spec(self) -> EnvironmentSpec:
        """The spec of one of them."""
        ...

    def reset(self) -> TimeStep:
        """Starts a new episode in every environment: first steps, `[E, ...]`."""
        ...

    def step(self, actions: np.ndarray) -> TimeStep:
        """Takes actions `[E, ...]` and returns the time steps that follow, `[E, ...]`."""
        ...

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`."""
        ...

    def close(self) -> None:
        """Gives back what the environments hold. Calling it twice does no harm."""
        ...
