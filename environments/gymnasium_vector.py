"""Vectors of environments that other libraries step: Gymnasium's, and EnvPool's.

`E` denotes the number of environments.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ..datatypes import EnvironmentSpec
from .attributes import Attributes
from .failures import RefusedError, close_quietly, drawn, one_sentence
from .gymnasium_spaces import convert_actions, convert_observations
from .mujoco_state import MujocoState
from .sequential import Result, SequentialVector, part_of


def is_gymnasium_vector(thing: Any) -> bool:
    """Whether `from_gymnasium_vector` takes it."""
    return isinstance(thing, VectorEnv) or is_pool(thing)


def is_pool(thing: Any) -> bool:
    """Whether it is a pool of EnvPool with the interface of Gymnasium, in any version."""
    return isinstance(thing, gymnasium.Env | VectorEnv) and hasattr(thing, "all_env_ids")


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
            if pool:
                num_envs, limit = vector.config["num_envs"], vector.config.get("max_episode_steps")
                seen, acted = vector.observation_space, vector.action_space
            else:
                num_envs, limit = vector.num_envs, vector.spec and vector.spec.max_episode_steps
                seen, acted = vector.single_observation_space, vector.single_action_space
        observations, see, note = convert_observations(seen)
        actions, act = convert_actions(acted)
        spec = EnvironmentSpec(observations, actions, max_episode_steps=limit, note=note)
        super().__init__(spec, see, act, int(num_envs), limit=None)
        self.moved: np.ndarray | None = None
        self._given: Any = None  # the newest actions, in the form of the vector
        self._newest: list[Any] = []  # observations, in the form of the vector
        self._begun: Any = None  # observations that begin episodes, in the mode SAME_STEP
        self._closed = False

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`."""
        return drawn(lambda: self._vector.render()[0])

    def close(self) -> None:
        """Closes the vector. Calling it twice does no harm."""
        if not self._closed:
            self._closed = True
            close_quietly(self._vector, "the vector")

    def _parts(self, e: int) -> list[Attributes | MujocoState]:
        raise ValueError(f"{type(self._vector).__name__} has no state that could be kept")

    def _results(self, given: np.ndarray, first: np.ndarray) -> Sequence[Result]:
        if self.moved is not None:
            waited = ~self.moved
            given[waited] = self._given[waited]
        self._given, self.moved = given, None
        if self._num_steps == 0:
            options, self._options = self._options, {}
            results = self._starts_of(self._reset(**options), first)
        elif self._mode is AutoresetMode.NEXT_STEP or not first.any():
            results = self._stepped(given, first)
        else:
            if self._mode is AutoresetMode.DISABLED:
                self._begun = self._reset(options={"reset_mask": first.copy()})
            self.moved = None if first.all() else first
            results = self._starts_of(self._begun, first)
        self._newest = [observation for observation, *_ in results]
        return results

    def _starts_of(self, batch: Any, first: np.ndarray) -> list[Result]:
        """First observations where `first`; the other environments repeat theirs."""
        each = (self._part(batch, e) if x else self._newest[e] for e, x in enumerate(first))
        return [(observation, 0.0, False, False) for observation in each]

    def _stepped(self, given: np.ndarray, first: np.ndarray) -> list[Result]:
        results = self._called("step", lambda: self._vector.step(given))
        if not isinstance(results, tuple) or len(results) != 5:
            raise RefusedError(
                "the vector's step must return observation, reward, terminated, truncated and "
                f"info, got {results!r:.60}."
            )
        batch, *numbers, info = results
        names = ("reward", "terminated", "truncated")
        reward, terminated, truncated = map(self._column, names, numbers)
        self._begun, found = batch, list[Result]()
        for e in range(self.num_envs):
            if first[e]:  # the vector has begun it; what came with it means nothing
                found.append((self._part(batch, e), 0.0, False, False))
                continue
            over = self._bool(terminated[e], "terminated", e)
            cut_off = self._bool(truncated[e], "truncated", e)
            is_final = self._mode is AutoresetMode.SAME_STEP and (over or cut_off)
            part = self._final(info, e) if is_final else self._part(batch, e)
            found.append((part, reward[e], over, cut_off))
        return found

    def _column(self, name: str, values: Any) -> np.ndarray:
        """One value for each environment."""
        array = np.asarray(values)
        if array.shape != (self.num_envs,):
            raise RefusedError(
                f"the {name} at step {self._num_steps} is {array.dtype} {[*array.shape]}; it must "
                f"be one number for each of {self.num_envs} environments."
            )
        return array

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

    def _reset(self, **options: Any) -> Any:
        return self._called("reset", lambda: self._vector.reset(**options)[0])

    def _called(self, name: str, function: Callable[[], Any]) -> Any:
        with one_sentence(f"the vector failed in {name}(), at step {self._num_steps}"):
            return function()


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
