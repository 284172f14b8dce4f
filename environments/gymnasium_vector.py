"""Vectors of environments that other libraries step: Gymnasium's, and EnvPool's.

`E` denotes the number of environments.
"""

from collections.abc import Callable, Iterable
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
    """What `from_gymnasium_vector` makes."""

    def __init__(self, vector: Any, *, seed: int | None) -> None:
        _check_autoreset(vector)
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

    def _results(self, given: np.ndarray, first: np.ndarray) -> Iterable[Result]:
        if self._num_steps == 0:
            options, self._options = self._options, {}
            batch = self._called("reset", lambda: self._vector.reset(**options)[0])
            numbers = [np.zeros(self.num_envs)] * 3
        else:
            results = self._called("step", lambda: self._vector.step(given))
            if not isinstance(results, tuple) or len(results) != 5:
                raise RefusedError(
                    "the vector's step must return observation, reward, terminated, truncated and "
                    f"info, got {results!r:.60}."
                )
            batch, *numbers, _ = results
        columns = map(self._column, ("reward", "terminated", "truncated"), numbers)
        for e, result in enumerate(zip(*columns, strict=True)):
            # Where an episode has begun, what came with its first observation means nothing.
            yield (self._part(batch, e), *((0.0, False, False) if first[e] else result))

    def _column(self, name: str, values: Any) -> np.ndarray:
        """One value for each environment."""
        array = np.asarray(values)
        if array.shape != (self.num_envs,):
            raise RefusedError(
                f"the {name} at step {self._num_steps} is {array.dtype} {[*array.shape]}; it must "
                f"be one number for each of {self.num_envs} environments."
            )
        return array

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
        with one_sentence(f"the vector failed in {name}(), at step {self._num_steps}"):
            return function()


def _check_autoreset(vector: Any) -> None:
    """Refuses whatever does not begin an episode in the step after the last one of another."""
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
        return
    mode = (vector.metadata or {}).get("autoreset_mode")
    if getattr(mode, "value", mode) != AutoresetMode.NEXT_STEP.value:
        raise ValueError(
            f'metadata["autoreset_mode"] of {type(vector).__name__} must be '
            f"AutoresetMode.NEXT_STEP, got {mode}: gymnasium.make_vec(..., "
            'vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP}) makes such a vector.'
        )
