"""dm_env environments as vectors in arrival form: any, the control suite's tasks, bsuite's ids.

dm_control (a second) and bsuite are imported for their ids alone.
"""

import contextlib
import importlib.metadata
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np

from ..basics.sentences import did_you_mean
from ..datatypes import DEFAULT_LIMIT
from .arrival import integer_seeds
from .failures import RefusedError, closed_on_error, drawn, failure, one_sentence
from .mujoco import MujocoState, choose_backend, drawing
from .plain_data import Attributes
from .sequential import Result, SequentialVector, check_alike
from .spaces import convert
from .switches import BSUITE_PREFIX, CONTROL_PREFIX

_SIDE = 480  # of a picture, as Gymnasium's MuJoCo draws
_DRAWN = ("quadruped", "escape")  # dm_control draws its terrain with OpenGL on every reset
_INNER = "_env"  # of bsuite's wrappers: what they wrap
_NOT_KEPT = {_INNER, "_logger", "_init_fn"}  # the last is a closure over a generator that is kept


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
        return drawn(lambda: self._environments[0].render())

    def _begin(self, e: int) -> Any:
        return _timestep("reset", self._environments[e].reset()).observation

    def _advance(self, e: int, action: np.ndarray) -> Result:
        timestep = _timestep("step", self._environments[e].step(action))
        last, discount = timestep.last(), timestep.discount
        terminated = last and discount == 0
        if discount != 1 and not terminated:
            raise self._refused("discount", e, f"is {discount}; it must be 1, or 0 on a last step")
        return timestep.observation, timestep.reward, terminated, last and not terminated

    def _parts(self, e: int) -> list[Attributes | MujocoState]:
        return [Attributes(self._environments[e])]


def _timestep(name: str, found: Any) -> dm_env.TimeStep:
    if not isinstance(found, dm_env.TimeStep):
        raise RefusedError(f"{name}() must return a dm_env.TimeStep, got a {type(found).__name__}.")
    return found


class ControlSuite(DmEnvVector):
    """E copies of one task, stepped sequentially.

    The observation is float32 `[D]`: the task's parts in the order of dm_control's
    `flat_observation` (`cartpole`: 3 of `position`, then 2 of `velocity`). Actions are float32,
    clipped to the task's bounds here alone. An episode ends after 1000 steps by its time limit, so
    with discount 1; only `lqr` has none, ends by termination, and bounds its actions by 1e10, at
    which its physics diverge. `time_limit`, in simulated seconds, replaces the task's own. Actions
    are taken for `repeat` steps, or up to a last one; that is one step here, with summed rewards.
    """

    def __init__(
        self,
        domain: str,
        task: str,
        *,
        num_envs: int = 1,
        seed: int = 0,
        time_limit: float | None = None,
        repeat: int = 1,
    ) -> None:
        for name, value in {"time_limit": time_limit, "repeat": repeat}.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}.")
        limits = {} if time_limit is None else {"time_limit": time_limit}
        seeds, suite = integer_seeds(seed, num_envs), _suite()
        found = f"MuJoCo {importlib.metadata.version('mujoco')} (dm_control needs MuJoCo 3)"
        with one_sentence(f"{CONTROL_PREFIX}{domain}/{task} cannot be made with {found}"):
            environments = [suite.load(domain, task, {"random": int(s), **limits}) for s in seeds]
        steps = math.ceil((time_limit or 0.0) / environments[0].control_timestep())
        super().__init__(environments, max_episode_steps=max(steps, DEFAULT_LIMIT))
        self.frames_per_second /= repeat
        self._drawn, self._repeat = (domain, task) == _DRAWN, repeat
        each = [one.physics for one in environments]
        self._simulations = [MujocoState(one.model.ptr, one.data.ptr) for one in each]

    def render(self) -> np.ndarray:
        """A picture of the first environment by its first camera: uint8 `[480, 480, 3]`."""
        with drawing():
            return np.asarray(self._environments[0].physics.render(_SIDE, _SIDE, camera_id=0))

    def _begin(self, e: int) -> Any:
        with drawing() if self._drawn else contextlib.nullcontext():
            return super()._begin(e)

    def _advance(self, e: int, action: np.ndarray) -> Result:
        total = 0.0
        for _ in range(self._repeat):
            observation, reward, terminated, truncated = super()._advance(e, action)
            total += reward
            if terminated or truncated:
                break
        return observation, total, terminated, truncated

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
        raise failure("the control suite (Python 3.10 to 3.12) cannot be used", error) from error
    except Exception:  # it loads the OpenGL that MUJOCO_GL names; its errors have no common type
        with drawing():
            raise
    return suite


class BsuiteVector(DmEnvVector):
    """E environments of one of bsuite's ids, which bsuite's `Logging` records.

    A record is a list of rows, from names of columns (`steps`, `episode`, `total_return`, and what
    the experiment adds) to numbers, written after 1, 2, ..., 10, 12, 14, 17, 20, 25, 30, ...
    episodes; `state()` has them under "records". `seed` and the id's number replace the seeds of
    bsuite's settings (the ids of `catch` differ in no other way), but not a `mapping_seed`.
    """

    def __init__(self, id: str, *, num_envs: int, seed: int) -> None:
        with one_sentence(f"{BSUITE_PREFIX}{id} cannot be made"):
            from bsuite import bsuite, sweep
            from bsuite.utils.wrappers import Logging

            if id not in sweep.SETTINGS:
                raise RefusedError(f"bsuite has no id {id!r}{did_you_mean(id, sweep.SWEEP)}.")
            name, _, nth = id.partition("/")
            environments = [bsuite.load(name, sweep.SETTINGS[id]) for _ in range(num_envs)]
        for e, number in enumerate(integer_seeds(seed, num_envs, int(nth))):
            for part in _parts_of(environments[e]):
                if "_rng" in vars(part):
                    part._rng.seed(int(number))
        self._records = [_Record() for _ in environments]
        super().__init__([*map(Logging, environments, self._records)])

    def state(self) -> dict[str, Any]:
        """See `Resumable`. With "records", one for each environment."""
        return {**super().state(), "records": [record.rows for record in self._records]}

    def _parts(self, e: int) -> list[Attributes | MujocoState]:
        parts = [*_parts_of(self._environments[e]), self._records[e]]
        return [Attributes(part, _NOT_KEPT) for part in parts]


class _Record:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, data: Mapping[str, Any]) -> None:
        self.rows = [*self.rows, dict(data)]  # a state that was given away stays as it is


def _parts_of(environment: Any) -> Iterator[Any]:
    while environment is not None:
        yield environment
        environment = vars(environment).get(_INNER)
