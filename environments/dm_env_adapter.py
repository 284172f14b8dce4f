"""Any dm_env environment, as a vector of them in arrival form."""

from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from ..datatypes import DEFAULT_LIMIT, ActionSpec, EnvironmentSpec
from .arrival import Convert, bounded_actions, fits
from .failures import RefusedError, closed_on_error, drawn
from .mujoco import MujocoState
from .observations import Group, Part, float_array, floats, image, is_image
from .plain_data import Attributes
from .sequential import Result, SequentialVector, check_alike


class DmEnvVector(SequentialVector):
    """E dm_env environments, stepped sequentially in this process.

    An episode whose last discount is 0 ends by termination; one whose last discount is 1 was cut
    off by a time limit.

    The specs follow from those of the environments:

    | observation spec | observation |
    |---|---|
    | unsigned integers or bool, `[H, W, C]` or `[H, W]` | an image, as in `gymnasium_spaces` |
    | floats | float32, the same shape; a scalar is a vector of one number |
    | dictionary of floats | float32 `[sum of sizes]`: flattened, in the order of the spec |

    | action spec | action |
    |---|---|
    | DiscreteArray of n values | int32, 0 to n - 1 |
    | BoundedArray of floats, finite bounds | float32 `[size]`: flattened; clipped here |

    Args:
      environments: E >= 1 of them. They draw their own random numbers: `dm_env` has no seeds.
      max_episode_steps: transitions after which episodes are cut off that have not ended before.

    Raises:
      ValueError: a spec is none of the above, or the environments have different specs or are one
        and the same object.
    """

    def __init__(
        self, environments: Sequence[dm_env.Environment], *, max_episode_steps: int = DEFAULT_LIMIT
    ) -> None:
        with closed_on_error(environments):
            seen, taken = check_alike(environments, "observation_spec", "action_spec")
            observations, see, note = _observations(seen)
            actions, act = _actions(taken)
            spec = EnvironmentSpec(
                observations, actions, max_episode_steps=max_episode_steps, note=note
            )
            super().__init__(spec, see, act, len(environments), limit=max_episode_steps)
            self._environments = list(environments)

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`.

        Raises:
          ValueError: the environment has no method `render()`, which dm_env does not ask for.
        """
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


def _observations(spec: Any) -> tuple[specs.Array, Part | Group, str]:
    """The spec of one observation, what checks and converts one to it, and a note on it."""
    if _is_float(spec):
        return float_array(spec.shape), floats(spec), ""
    if isinstance(spec, specs.Array) and is_image(spec):
        low, high = _limits(spec)
        if high is not None:
            return image(spec, (low, high))
    if isinstance(spec, Mapping) and spec and all(map(_is_float, spec.values())):
        tree = Group(spec, {key: floats(part) for key, part in spec.items()})
        return float_array((tree.size,)), tree, ""
    raise ValueError(
        f"the observation spec {spec} is not supported: it must be floats, unsigned integers (of "
        "more than 16 bits only with bounds) or bool with 2 or 3 axes, or a dictionary of floats."
    )


def _limits(spec: specs.Array) -> tuple[Any, Any]:
    """The least and the largest pixel; the latter is None where a large type has no bounds."""
    if isinstance(spec, specs.BoundedArray):
        return spec.minimum, spec.maximum
    if spec.dtype == np.bool_:
        return 0, 1
    return 0, np.iinfo(spec.dtype).max if spec.dtype.itemsize <= 2 else None


def _is_float(spec: Any) -> bool:
    return isinstance(spec, specs.Array) and np.issubdtype(spec.dtype, np.floating)


def _actions(spec: Any) -> tuple[ActionSpec, Convert]:
    """The spec of one action, and the function that converts actions `[E, ...]`."""
    if isinstance(spec, specs.DiscreteArray):
        ours = specs.DiscreteArray(spec.num_values, np.int32, "action")
        return ours, lambda actions: actions.astype(spec.dtype)
    if isinstance(spec, specs.BoundedArray) and _is_float(spec):
        low, high = (np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum))
        if fits([low, high]):
            return bounded_actions(low, high, spec.dtype)
    raise ValueError(
        f"the action spec {spec} is not supported: it must be a DiscreteArray, or a BoundedArray "
        "of floats with finite bounds."
    )
