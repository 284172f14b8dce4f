"""Environments of other libraries, stepped sequentially in this process.

`E` denotes the number of environments.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec, TimeStep
from .arrival import arrival, checked_actions
from .attributes import attributes, set_attributes
from .failures import RefusedError, failure, one_sentence
from .mujoco_state import MujocoState

Convert = Callable[[Any], np.ndarray]
_LARGEST = float(np.finfo(np.float32).max)


class SequentialVector:
    """Base of adapters: restarts, time steps, and checks of what the environments return.

    An adapter defines how environment e begins (`_begin`) and is stepped (`_advance`), and the
    objects whose attributes are its state (`_parts`).

    Args:
      spec: of one of them.
      act: converts checked actions `[E, ...]` to the form and the bounds of the environments.
        Actions are clipped here only.
      num_envs: E.
      limit: transitions after which an episode is cut off; None leaves that to the environments.

    Raises:
      ValueError: a limit below 1.
    """

    _COUNTERS: tuple[str, ...] = ("_lengths", "_starts", "_num_steps")

    def __init__(
        self, spec: EnvironmentSpec, act: Convert, num_envs: int, *, limit: int | None
    ) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"max_episode_steps must be at least 1, got {limit}.")
        self._spec, self._act, self._limit = spec, act, limit
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
            observation is not finite as a float32, an observation does not have the shape of its
            spec, or an environment raised an error or called `sys.exit()`.
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
            observation[e] = self._checked(found, e)
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

    def _begin(self, e: int) -> np.ndarray:
        """Starts an episode in environment e; returns its observation in the spec's form."""
        raise NotImplementedError

    def _advance(self, e: int, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Steps environment e: observation in the spec's form, reward, terminated, truncated."""
        raise NotImplementedError

    def _checked(self, observation: np.ndarray, e: int) -> np.ndarray:
        # Assigning to a row of a batch would broadcast a wrong shape silently.
        if observation.shape != self._spec.observations.shape:
            raise RefusedError(
                f"the observation of environment {e} at step {self._num_steps} has shape "
                f"{observation.shape}; its spec says {self._spec.observations.shape}."
            )
        return observation

    def _check_rewards(self, reward: np.ndarray) -> None:
        if fits(reward):
            return
        e = next(e for e, value in enumerate(reward) if not fits(value))
        raise RefusedError(
            f"the reward of environment {e} at step {self._num_steps} is {reward[e]}; "
            "it must be finite as a float32."
        )

    def _check_observations(self, observation: np.ndarray) -> None:
        if observation.dtype == np.uint8 or np.isfinite(observation).all():
            return
        first = tuple(np.argwhere(~np.isfinite(observation))[0].tolist())
        element = f"observation{list(first[1:])}" if first[1:] else "observation"
        raise RefusedError(
            f"the {element} of environment {first[0]} at step {self._num_steps} is "
            f"{observation[first]}; it must be finite as a float32."
        )


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
    """The spec of unbounded float32 observations."""
    return specs.Array(shape, np.float32, "observation")


def is_image(space: Any) -> bool:
    """Whether a space or a spec has uint8 or bool values and 2 or 3 axes."""
    return space.dtype in (np.uint8, np.bool_) and len(space.shape) in (2, 3)


def image_observations(space: Any) -> tuple[specs.Array, Convert]:
    """The spec of images, and the function that converts one to it.

    Args:
      space: a space or a spec, `[H, W, C]`, or `[H, W]`, which becomes `[H, W, 1]`; uint8, or bool,
        whose values become 0 and 255.
    """
    shape = space.shape if len(space.shape) == 3 else (*space.shape, 1)
    spec = specs.BoundedArray(shape, np.uint8, 0, 255, "observation")
    largest = np.uint8(255 if space.dtype == np.bool_ else 1)
    return spec, lambda image: np.asarray(image, np.uint8).reshape(shape) * largest


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
