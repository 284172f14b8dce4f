"""Vectors of environments that other libraries step: Gymnasium's, and EnvPool's.

`E` denotes the number of environments.
"""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ..datatypes import EnvironmentSpec, TimeStep
from .arrival import arrival, checked_actions
from .failures import RefusedError, close_quietly, drawn, failure, one_sentence
from .gymnasium_spaces import convert_actions, convert_observations
from .sequential import SequentialVector, part_of


def is_gymnasium_vector(thing: Any) -> bool:
    """Whether `from_gymnasium_vector` takes it."""
    return isinstance(thing, VectorEnv) or is_pool(thing)


class GymnasiumVectorAdapter(SequentialVector):
    """What `from_gymnasium_vector` makes.

    Attributes:
      moved: bool `[E]`, the environments to which the newest time steps are new; None for all. The
        others wait: their time step repeats, with a reward of 0, and the action that was given
        before counts.
    """

    def __init__(self, vector: Any, *, seed: int | None) -> None:
        self._mode = _autoreset_mode(vector)
        self._vector, self._options = vector, {} if seed is None else {"seed": seed}
        pool = is_pool(vector)
        if pool and seed is not None:
            raise ValueError("seed must be None for EnvPool: a pool takes it where it is made.")
        with one_sentence("the vector's spaces cannot be read"):
            num_envs = int(vector.config["num_envs"] if pool else vector.num_envs)
            kinds = ("observation_space", "action_space")
            seen, acted = (getattr(vector, f"{'' if pool else 'single_'}{x}") for x in kinds)
            registered = None if pool else vector.spec
            limit = vector.config.get("max_episode_steps") if pool else None
        observations, see, note = convert_observations(seen)
        actions, act = convert_actions(acted)
        limit = registered.max_episode_steps if registered else limit
        spec = EnvironmentSpec(observations, actions, max_episode_steps=limit, note=note)
        super().__init__(spec, see, act, num_envs, limit=None)
        self.moved: np.ndarray | None = None
        self._given = act(np.zeros((num_envs, *actions.shape), actions.dtype))
        self._restarted: Any = None  # observations that begin episodes, in the mode SAME_STEP
        self._newest: TimeStep | None = None
        self._closed = False

    def reset(self) -> TimeStep:
        """Starts a new episode in every environment: first steps, `[E, ...]`."""
        self._num_steps, self.moved = 0, None
        options, self._options = self._options, {}
        observation, _ = self._called("reset", lambda: self._vector.reset(**options))
        return self._begun(observation, np.ones(self.num_envs, bool))

    def step(self, actions: np.ndarray) -> TimeStep:
        """Takes actions `[E, ...]` and returns the time steps that follow, `[E, ...]`.

        Raises:
          ValueError: see `SequentialVector`; or in the mode SAME_STEP a last observation is
            missing.
        """
        assert self._newest is not None, "reset comes first"
        given = self._act(checked_actions(actions, self.spec.actions, self.num_envs))
        if self.moved is not None:
            waited = ~self.moved
            given[waited] = self._given[waited]
        self._given, self._num_steps = given, self._num_steps + 1
        starts, waits = self._starts, self._mode is not AutoresetMode.NEXT_STEP
        if not (waits and starts.any()):
            self.moved = None
            return self._stepped(self._called("step", lambda: self._vector.step(given)))
        observation = self._restarted
        if self._mode is AutoresetMode.DISABLED:
            options = {"reset_mask": starts.copy()}
            observation, _ = self._called("reset", lambda: self._vector.reset(options=options))
        self.moved = None if starts.all() else starts
        return self._begun(observation, starts)

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`."""
        return drawn(lambda: self._vector.render()[0])

    def close(self) -> None:
        """Closes the vector. Calling it twice does no harm."""
        if not self._closed:
            self._closed = True
            close_quietly(self._vector, "the vector")

    def state(self) -> dict[str, Any]:
        """There is none.

        Raises:
          ValueError: always.
        """
        raise ValueError(f"{type(self._vector).__name__} has no state that could be kept")

    def _begun(self, found: Any, first: np.ndarray) -> TimeStep:
        """First steps where `first`; the others repeat theirs."""
        seen = self.spec.observations
        observation = np.zeros((self.num_envs, *seen.shape), seen.dtype)
        if self._newest is not None:
            observation[:] = self._newest.observation
        for e in np.flatnonzero(first):
            self._read(self._part(found, e), observation[e], e)
        nothing = np.zeros(self.num_envs)
        return self._arrived(observation, nothing, nothing, nothing, first)

    def _stepped(self, results: Any) -> TimeStep:
        if not isinstance(results, tuple) or len(results) != 5:
            raise RefusedError(
                "the vector's step must return observation, reward, terminated, truncated and "
                f"info, got {results!r:.60}."
            )
        found, *numbers, info = results
        reward, terminated, truncated = (
            self._column(name, x)
            for name, x in zip(("reward", "terminated", "truncated"), numbers, strict=True)
        )
        # In the mode NEXT_STEP the vector has begun these; what came with them means nothing.
        first = self._starts
        seen = self.spec.observations
        observation = np.empty((self.num_envs, *seen.shape), seen.dtype)
        restarts = self._mode is AutoresetMode.SAME_STEP
        is_final = restarts & ((terminated != 0) | (truncated != 0))
        for e in range(self.num_envs):
            part = self._final(info, e) if is_final[e] else self._part(found, e)
            self._read(part, observation[e], e)
        self._restarted = found
        return self._arrived(observation, reward, terminated, truncated, first)

    def _arrived(
        self,
        observation: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        first: np.ndarray,
    ) -> TimeStep:
        self._check_rewards(np.where(first, 0, reward))
        self._check_observations(observation)
        self._newest = arrival(observation, reward, terminated != 0, truncated != 0, first)
        self._starts = ~first & ((terminated != 0) | (truncated != 0))
        return self._newest

    def _column(self, name: str, values: Any) -> np.ndarray:
        """One number for each environment."""
        array = np.asarray(values)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "biuf":
            what = f"{array.dtype} {[*array.shape]}"
            raise RefusedError(
                f"the {name} at step {self._num_steps} is {what}; it must be one number for each "
                f"of {self.num_envs} environments."
            )
        read = self._number if name == "reward" else self._bool_of(name)
        return np.array([read(x, e) for e, x in enumerate(array)], np.float64)

    def _bool_of(self, name: str) -> Callable[[Any, int], bool]:
        return lambda value, e: self._bool(value, name, e)

    def _final(self, info: Any, e: int) -> Any:
        final = info.get("final_obs") if isinstance(info, Mapping) else None
        found = None if final is None else self._part(final, e)
        if found is None:
            raise self._refused(
                "last observation", e, 'is missing: in the mode SAME_STEP it is info["final_obs"]'
            )
        return found

    def _part(self, batch: Any, e: int) -> Any:
        """The part of one environment."""
        try:
            return part_of(batch, e)
        except Exception as error:  # of whatever stands in place of arrays
            raise RefusedError(
                f"the vector's observation at step {self._num_steps} is {batch!r:.60}; it must "
                "have a part for each environment."
            ) from error

    def _called(self, name: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except (Exception, SystemExit) as error:
            what = f"the vector failed in {name}(), at step {self._num_steps}"
            raise failure(what, error) from error


def _autoreset_mode(vector: Any) -> AutoresetMode:
    """The mode that a vector declares."""
    if not is_gymnasium_vector(vector):
        raise ValueError(
            "vector must be a gymnasium.vector.VectorEnv, or a pool of EnvPool with the interface "
            f"of Gymnasium, got a {type(vector).__name__}."
        )
    if is_pool(vector):
        if vector.is_async:
            raise ValueError(
                f"a pool must have a batch_size of all its {vector.config['num_envs']} "
                f"environments, got {vector.config['batch_size']}: others step without each other."
            )
        return AutoresetMode.NEXT_STEP
    mode = (vector.metadata or {}).get("autoreset_mode")
    try:
        return AutoresetMode(getattr(mode, "value", mode))
    except ValueError:
        raise ValueError(
            f'metadata["autoreset_mode"] of {type(vector).__name__} must be one of '
            f"gymnasium.vector.AutoresetMode, got {mode!r}: it says where last observations are."
        ) from None


def is_pool(thing: Any) -> bool:
    """Whether it is a pool of EnvPool with the interface of Gymnasium, in any version."""
    return isinstance(thing, gymnasium.Env | VectorEnv) and hasattr(thing, "all_env_ids")
