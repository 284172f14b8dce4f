"""Environments of other libraries, stepped sequentially in this process.

`E` denotes the number of environments.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec, TimeStep
from .arrival import arrival, checked_actions
from .attributes import attributes, set_attributes
from .failures import RefusedError, failure, one_sentence
from .mujoco_state import MujocoState
from .observations import Contains, Group, MisfitError, Part, image

Convert = Callable[[Any], np.ndarray]
_LARGEST = float(np.finfo(np.float32).max)
_SIDE = 16  # pixels of an image whose channels may come first


class SequentialVector:
    """Base of adapters: restarts, time steps, and checks of what the environments return.

    An adapter defines how environment e begins (`_begin`) and is stepped (`_advance`), and the
    objects whose attributes are its state (`_parts`).

    Attributes:
      is_strict: whether observations must also be in their space by the library's own rules, which
        know bounds of floats and exact types. `check_environment` asks for it.

    Args:
      spec: of one of them.
      see: checks and converts their observations.
      act: converts checked actions `[E, ...]` to the form and the bounds of the environments.
        Actions are clipped here only.
      num_envs: E.
      limit: transitions after which an episode is cut off; None leaves that to the environments.

    Raises:
      ValueError: a limit below 1.
    """

    _COUNTERS: tuple[str, ...] = ("_lengths", "_starts", "_num_steps")

    def __init__(
        self,
        spec: EnvironmentSpec,
        see: Part | Group,
        act: Convert,
        num_envs: int,
        *,
        limit: int | None,
    ) -> None:
        if limit is not None and not (isinstance(limit, int | np.integer) and limit >= 1):
            raise ValueError(f"max_episode_steps must be an integer of at least 1, got {limit!r}.")
        if 0 in spec.observations.shape:
            raise ValueError("observations have no numbers: there is nothing to see.")
        self._spec, self._see, self._act, self._limit = spec, see, act, limit
        self.is_strict = False
        self._lengths = np.zeros(num_envs, np.int64)  # transitions of the running episodes
        self._starts = np.ones(num_envs, bool)  # its next step is the first of an episode
        self._num_steps = -1  # since the last reset(), which is step 0

    @property
    def num_envs(self) -> int:
        """The number of environments E."""
        return len(self._starts)

    @property
    def spec(self) -> EnvironmentSpec:
        """The spec of one of them."""
        return self._spec

    def reset(self) -> TimeStep:
        """Starts a new episode in every environment: first steps, `[E, ...]`."""
        self._starts[:], self._num_steps = True, -1
        space = self._spec.actions
        return self.step(np.zeros((self.num_envs, *space.shape), space.dtype))

    def step(self, actions: np.ndarray) -> TimeStep:
        """Takes actions `[E, ...]` and returns the time steps that follow, `[E, ...]`.

        Raises:
          ValueError: an action has the wrong shape or kind or is not finite, a reward or an
            observation is not finite as a float32, an observation does not fit its space, or an
            environment raised an error or called `sys.exit()`.
        """
        given = self._act(checked_actions(actions, self._spec.actions, self.num_envs))
        first, self._num_steps = self._starts, self._num_steps + 1
        seen = self._spec.observations
        observation = np.empty((self.num_envs, *seen.shape), seen.dtype)
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        for e in range(self.num_envs):
            try:
                if first[e]:
                    found = self._begin(e)
                else:
                    found, reward[e], terminated[e], truncated[e] = self._advance(e, given[e])
            except (Exception, SystemExit) as error:
                where = "in reset(), at" if first[e] else "at"
                what = f"environment {e} failed {where} step {self._num_steps}"
                raise failure(what, error) from error
            self._read(found, observation[e], e)
        self._check_rewards(reward)
        self._check_observations(observation)
        self._lengths = np.where(first, 0, self._lengths + 1)
        if self._limit is not None:
            truncated |= self._lengths >= self._limit
        self._starts = terminated | truncated
        return arrival(observation, reward, terminated, truncated, first)

    def state(self) -> dict[str, Any]:
        """See `Resumable`. The attributes of the environments and of their wrappers."""
        return {
            **{name: getattr(self, name) for name in self._COUNTERS},
            "environments": [
                {
                    "parts": [attributes(*part) for part in self._parts(e)],
                    "physics": [physics.state() for physics in self._physics(e)],
                }
                for e in range(self.num_envs)
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Resumable`."""
        for e, kept in enumerate(state["environments"]):
            for part, found in zip(self._parts(e), kept["parts"], strict=True):
                set_attributes(*part, found)
            for physics, found in zip(self._physics(e), kept["physics"], strict=True):
                physics.restore(found)
        for name in self._COUNTERS:
            setattr(self, name, state[name])

    def _parts(self, e: int) -> list[tuple[Any, set[str]]]:
        """The objects that are environment e, and the attributes of each that are not kept."""
        raise NotImplementedError

    def _physics(self, e: int) -> list[MujocoState]:
        """The simulations of environment e."""
        return []

    def _begin(self, e: int) -> Any:
        """Starts an episode in environment e; returns its observation."""
        raise NotImplementedError

    def _advance(self, e: int, action: np.ndarray) -> tuple[Any, Any, Any, Any]:
        """Steps environment e: its observation, reward, terminated, truncated."""
        raise NotImplementedError

    def _read(self, found: Any, out: np.ndarray, e: int) -> None:
        try:
            self._see.read(found, out)
            if self.is_strict:
                self._see.check_contained(found)
        except MisfitError as error:
            raise self._refused(f"observation{error.where}", e, error.what) from error

    def _check_rewards(self, reward: np.ndarray) -> None:
        if fits(reward):
            return
        e = next(e for e, value in enumerate(reward) if not fits(value))
        raise self._refused("reward", e, f"is {reward[e]}; it must be finite as a float32")

    def _check_observations(self, observation: np.ndarray) -> None:
        if observation.dtype == np.uint8 or np.isfinite(observation).all():
            return
        flat = observation.reshape(self.num_envs, -1)
        e, index = (int(x) for x in np.argwhere(~np.isfinite(flat))[0])
        what = f"is {flat[e, index]}; it must be finite as a float32"
        raise self._refused(f"observation{self._see.name(index)}", e, what)

    def _refused(self, name: str, e: int, what: str) -> RefusedError:
        return RefusedError(f"the {name} of environment {e} at step {self._num_steps} {what}.")


def bounded_actions(
    low: np.ndarray, high: np.ndarray, dtype: np.dtype
) -> tuple[specs.BoundedArray, Convert]:
    """The spec of continuous actions, and the function that clips them.

    They are clipped in the environment's own precision, because a bound that is rounded to float32
    can lie beyond it.

    Args:
      low: `[...]`, finite as float32.
      high: `[...]`, finite as float32.
      dtype: the type that the environment takes.

    Returns:
      A float32 spec, and a function from float32 `[E, ...]` to `dtype` `[E, ...]` within bounds.

    Raises:
      ValueError: an action has no numbers.
    """
    if not low.size:
        raise ValueError(
            f"actions of shape {low.shape} have no numbers: there is nothing to learn."
        )
    spec = specs.BoundedArray(
        low.shape, np.float32, low.astype(np.float32), high.astype(np.float32), "action"
    )
    return spec, lambda actions: np.clip(actions.astype(dtype), low, high)


def float_array(shape: tuple[int, ...]) -> specs.Array:
    """The spec of unbounded float32 observations; a scalar becomes a vector of one number."""
    return specs.Array(shape or (1,), np.float32, "observation")


def is_image(space: Any) -> bool:
    """Whether a space or a spec has unsigned integers or bools and 2 or 3 axes."""
    return np.dtype(space.dtype).kind in "ub" and len(space.shape) in (2, 3)


class Images(NamedTuple):
    """How the images of a space are seen.

    Attributes:
      spec: of one of them: `[H, W, C]`.
      see: checks and converts them.
      note: what is changed in them, for `EnvironmentSpec.note`.
    """

    spec: specs.Array
    see: Part
    note: str


def images(space: Any, contains: Contains, low: Any, high: Any) -> Images:
    """The images of a space or a spec.

    Args:
      space: `[H, W, C]`, or `[C, H, W]` where the first axis is that of the channels (at most a
        quarter of each other one, which are 16 or more), or `[H, W]`, which becomes `[H, W, 1]`.
      contains: whether the library says that a value is in the space.
      low: the value that becomes 0, for each pixel or for all.
      high: the value that becomes 255.
    """
    shape, notes = (*space.shape, 1)[:3], []
    channels_first = len(space.shape) == 3 and min(shape[1:]) >= max(_SIDE, 4 * shape[0])
    if channels_first:
        shape = (*shape[1:], shape[0])
        notes.append(f"have their channels first, {space.shape}, and are turned to {shape}")
    if space.dtype != np.bool_ and not (np.all(low == 0) and np.all(high == 255)):
        notes.append(f"have values from {np.min(low)} to {np.max(high)}, which become 0 to 255")
    spec = specs.BoundedArray(shape, np.uint8, 0, 255, "observation")
    see = image(space, contains, (low, high), channels_first=channels_first)
    return Images(spec, see, f"The environment's images {' and '.join(notes)}." if notes else "")


def check_alike(environments: Sequence[Any], spaces: Callable[[Any], dict[str, Any]]) -> None:
    """Refuses environments that cannot be stepped together.

    Args:
      environments: at least one.
      spaces: the names and values of one environment that must be equal in all of them.

    Raises:
      ValueError: two environments are the same object or have different spaces, or the spaces
        cannot be read.
    """
    if len({id(environment) for environment in environments}) < len(environments):
        raise ValueError(
            "each call must make a new environment, but two calls returned the same one."
        )
    wanted: dict[str, Any] = {}
    for e, environment in enumerate(environments):
        with one_sentence(f"the spaces of environment {e} cannot be read"):
            found_here = spaces(environment)
        wanted = wanted or found_here
        for name, found in found_here.items():
            if found != wanted[name]:
                raise ValueError(
                    f"the {name} of environment {e} is {found}, that of environment 0 is "
                    f"{wanted[name]}."
                )


def fits(values: Any) -> bool:
    """Whether all of them are finite as float32."""
    return bool((np.abs(values) <= _LARGEST).all())
