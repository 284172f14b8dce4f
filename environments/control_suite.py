"""The tasks of the DeepMind Control Suite (Tassa et al. 2018), as a vector of them in arrival form.

dm_control is imported when the first task is made or listed: that takes about a second.
"""

import contextlib
import importlib.metadata
import math
from typing import Any

import numpy as np

from ..datatypes import DEFAULT_LIMIT
from .arrival import integer_seeds
from .dm_env_adapter import DmEnvVector
from .failures import one_sentence
from .mujoco import MujocoState, choose_backend, drawing
from .plain_data import Attributes
from .switches import CONTROL_PREFIX

_SIDE = 480  # of a picture, as Gymnasium's MuJoCo draws
_DRAWN = ("quadruped", "escape")  # dm_control draws its terrain with OpenGL on every reset


class ControlSuite(DmEnvVector):
    """E copies of one task, stepped sequentially.

    The observation is float32 `[D]`: the task's parts in the order of dm_control's
    `flat_observation` (`cartpole`: 3 of `position`, then 2 of `velocity`). Actions are float32,
    clipped to the task's bounds here alone. An episode ends after 1000 steps by its time limit, so
    with discount 1; only `lqr` has none, ends by termination, and bounds its actions by 1e10, at
    which its physics diverge. `time_limit`, in simulated seconds, replaces the task's own.
    """

    def __init__(
        self,
        domain: str,
        task: str,
        *,
        num_envs: int = 1,
        seed: int = 0,
        time_limit: float | None = None,
    ) -> None:
        if time_limit is not None and not time_limit > 0:
            raise ValueError(f"time_limit must be positive, got {time_limit}.")
        limits = {} if time_limit is None else {"time_limit": time_limit}
        seeds, suite = integer_seeds(seed, num_envs), _suite()
        found = f"MuJoCo {importlib.metadata.version('mujoco')} (dm_control needs one below 4)"
        with one_sentence(f"{CONTROL_PREFIX}{domain}/{task} cannot be made with {found}"):
            kwargs = [{"random": int(s), **limits} for s in seeds]
            environments = [suite.load(domain, task, task_kwargs=each) for each in kwargs]
        steps = math.ceil((time_limit or 0.0) / environments[0].control_timestep())
        super().__init__(environments, max_episode_steps=max(steps, DEFAULT_LIMIT))
        self._drawn = (domain, task) == _DRAWN
        each = [one.physics for one in environments]
        self._simulations = [MujocoState(one.model.ptr, one.data.ptr) for one in each]

    def render(self) -> np.ndarray:
        """A picture of the first environment by its first camera: uint8 `[480, 480, 3]`."""
        physics = self._environments[0].physics
        camera = 0 if physics.model.ncam else -1  # -1 is the free camera
        with drawing():
            return np.asarray(physics.render(_SIDE, _SIDE, camera_id=camera))

    def close(self) -> None:
        """Frees the physics and what draws it. Calling it twice does no harm."""
        for environment in self._environments:
            environment.physics.free()
        self._environments = []

    def _begin(self, e: int) -> Any:
        with drawing() if self._drawn else contextlib.nullcontext():
            return super()._begin(e)

    def _parts(self, e: int) -> list[Attributes | MujocoState]:
        environment = self._environments[e]
        kept = Attributes(environment, {"_physics", "_task"}), Attributes(environment.task)
        return [*kept, self._simulations[e]]


def tasks() -> dict[str, tuple[str, str]]:
    """All tasks, from an id to domain and task; an ImportError without dm_control."""
    return {f"{CONTROL_PREFIX}{'/'.join(names)}": names for names in _suite().ALL_TASKS}


def _suite() -> Any:
    choose_backend()
    try:
        from dm_control import suite
    except ModuleNotFoundError as error:
        raise ImportError(
            f"the control suite needs {error.name}, which is missing: "
            'pip install "retrax[mujoco]" (Python 3.10 to 3.12)'
        ) from error
    except Exception:  # it loads the OpenGL that MUJOCO_GL names; its errors have no common type
        with drawing():
            raise
    return suite
