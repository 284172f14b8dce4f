"""Any Gymnasium environment, as a vector of them in arrival form."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from dm_env import specs
from gymnasium import spaces

from .arrival import arrival, checked_actions, integer_seeds
from .types import ActionSpec, EnvironmentSpec, TimeStep

Convert = Callable[[Any], np.ndarray]
_LARGEST = float(np.finfo(np.float32).max)


class GymnasiumVector:
    """E Gymnasium environments, stepped in turn in this process.

    An episode that is terminated ends with discount 0; one that is truncated (and not terminated)
    ends with discount 1. What Gymnasium calls `info` is dropped.

    The specs follow from the spaces:

    | observation space | observation |
    |---|---|
    | Box of uint8, `[H, W, C]` or `[H, W]` | the image: uint8 `[H, W, C]` or `[H, W, 1]` |
    | Box of floats | float32, the same shape |
    | Discrete of n values | float32 `[n]`, one-hot |
    | Dict of Boxes of floats | float32 `[sum of sizes]`: flattened, in sorted order of their keys |

    | action space | action |
    |---|---|
    | Discrete of n values | int32, 0 to n - 1 (the space's `start` is added here) |
    | Box of floats, bounded | float32, the same shape; clipped to the bounds here and only here |

    Args:
      make_one: makes one environment; called E times. It chooses the render mode.
      num_envs: E >= 1.
      seed: >= 0. The episodes of environment e depend on `seed` and e alone, as long as its own
        randomness comes from Gymnasium's `np_random`.

    Raises:
      ValueError: an argument is out of its range, a space is none of the above, or the E
        environments have different spaces or are one and the same object.
    """

    # gymnasium.vector.SyncVectorEnv has the same autoreset (NEXT_STEP), but on CartPole it is a
    # fifth slower than a bare loop (it copies twice and collects `info`, which we drop), and it
    # could not say which environment gave a wrong reward or an observation of a wrong shape.

    def __init__(
        self, make_one: Callable[[], gymnasium.Env], *, num_envs: int = 1, seed: int = 0
    ) -> None:
        self._seeds: list[int | None] = [int(s) for s in integer_seeds(seed, num_envs)]
        self._environments = [make_one() for _ in range(num_envs)]
        _check_alike(self._environments)
        observations, self._see = _observations(self._environments[0].observation_space)
        actions, self._act = _actions(self._environments[0].action_space)
        self._spec = EnvironmentSpec(observations, actions)
        self._starts = np.ones(num_envs, bool)  # its next step is the first of an episode
        self._num_steps = -1  # since the last reset(), which is step 0
        self._closed = False

    @property
    def num_envs(self) -> int:
        """The number of environments E."""
        return len(self._environments)

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
          ValueError: an action has the wrong shape or kind or is not finite, a reward is not
            finite as a float32, or an observation does not have the shape of its space.
        """
        given = self._act(checked_actions(actions, self._spec.actions, self.num_envs))
        first, self._num_steps = self._starts, self._num_steps + 1
        seen = self._spec.observations
        observation = np.empty((self.num_envs, *seen.shape), seen.dtype)
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        for e, environment in enumerate(self._environments):
            if first[e]:
                raw = self._begin(e)
            else:
                raw, reward[e], terminated[e], truncated[e], _ = environment.step(given[e])
            observation[e] = self._checked(self._see(raw), e)
        self._check_rewards(reward)
        self._starts = terminated | truncated
        return arrival(observation, reward, terminated, truncated, first)

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`.

        Raises:
          ValueError: the environment was made without `render_mode="rgb_array"`.
          ImportError: the environment draws with pygame, which is missing.
        """
        environment = self._environments[0]
        if environment.render_mode != "rgb_array":
            raise ValueError(
                "this environment was made without pictures: use make(..., render=True), or "
                f'render_mode="rgb_array" in your own function (it is {environment.render_mode!r}).'
            )
        try:
            return np.asarray(environment.render(), np.uint8)
        except gymnasium.error.DependencyNotInstalled as error:
            if "pygame" not in str(error):
                raise
            raise ImportError(
                'this environment draws with pygame, which is missing: pip install "retrax[video]"'
            ) from error

    def close(self) -> None:
        """Closes the environments. Calling it twice does no harm."""
        if self._closed:
            return
        self._closed = True
        for environment in self._environments:
            environment.close()

    def _begin(self, e: int) -> Any:
        """Resets environment e; it is given its seed the first time only."""
        seed, self._seeds[e] = self._seeds[e], None
        return self._environments[e].reset(seed=seed)[0]

    def _checked(self, observation: np.ndarray, e: int) -> np.ndarray:
        # Assigning to a row of a batch would broadcast a wrong shape silently.
        if observation.shape != self._spec.observations.shape:
            raise ValueError(
                f"the observation of environment {e} at step {self._num_steps} has shape "
                f"{observation.shape}; its space says {self._spec.observations.shape}."
            )
        return observation

    def _check_rewards(self, reward: np.ndarray) -> None:
        if _fits(reward):
            return
        e = next(e for e, value in enumerate(reward) if not _fits(value))
        raise ValueError(
            f"the reward of environment {e} at step {self._num_steps} is {reward[e]}; "
            "it must be finite as a float32."
        )


def _check_alike(environments: list[gymnasium.Env]) -> None:
    """Refuses environments that cannot be stepped side by side."""
    if len({id(environment) for environment in environments}) < len(environments):
        raise ValueError(
            "make_one must make a new environment each time, but it returned one twice."
        )
    for e, environment in enumerate(environments):
        for name in ("observation_space", "action_space"):
            ours, theirs = getattr(environment, name), getattr(environments[0], name)
            if ours != theirs:
                raise ValueError(
                    f"the {name} of environment {e} is {ours}, that of environment 0 is {theirs}."
                )


def _observations(space: spaces.Space) -> tuple[specs.Array, Convert]:
    """The spec of one observation, and the function that brings one into this form."""
    if isinstance(space, spaces.Discrete):
        rows, start = np.eye(int(space.n), dtype=np.float32), int(space.start)
        return _float_array(rows.shape[1:]), lambda index: rows[int(index) - start]
    if _is_float_box(space):
        return _float_array(space.shape), lambda value: np.asarray(value, np.float32)
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3):
        shape = space.shape if len(space.shape) == 3 else (*space.shape, 1)
        spec = specs.BoundedArray(shape, np.uint8, 0, 255, "observation")
        return spec, lambda image: np.asarray(image, np.uint8).reshape(shape)
    if isinstance(space, spaces.Dict) and all(map(_is_float_box, space.values())):
        return _flattened(space)
    raise ValueError(
        f"the observation space {space} is not supported: it must be Discrete, a Box of floats, "
        "a Box of uint8 with 2 or 3 axes, or a Dict of Boxes of floats."
    )


def _flattened(space: spaces.Dict) -> tuple[specs.Array, Convert]:
    keys = sorted(space.keys())
    size = sum(int(np.prod(space[key].shape)) for key in keys)

    def flatten(values: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([np.asarray(values[key], np.float32).ravel() for key in keys])

    return _float_array((size,)), flatten


def _actions(space: spaces.Space) -> tuple[ActionSpec, Convert]:
    """The spec of one action, and the function that brings actions `[E, ...]` into the space."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        spec = specs.DiscreteArray(int(space.n), np.int32, "action")
        return spec, lambda actions: actions.astype(np.int64) + start
    if _is_float_box(space) and _fits([space.low, space.high]):
        bounded = specs.BoundedArray(
            space.shape,
            np.float32,
            space.low.astype(np.float32),
            space.high.astype(np.float32),
            "action",
        )
        return bounded, lambda actions: np.clip(actions.astype(space.dtype), space.low, space.high)
    raise ValueError(
        f"the action space {space} is not supported: it must be Discrete, or a Box of floats with "
        "finite bounds."
    )


def _is_float_box(space: spaces.Space) -> bool:
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)


def _fits(values: Any) -> bool:
    """Whether all of them are finite as float32."""
    return bool((np.abs(values) <= _LARGEST).all())


def _float_array(shape: tuple[int, ...]) -> specs.Array:
    return specs.Array(shape, np.float32, "observation")
