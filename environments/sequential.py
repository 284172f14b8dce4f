"""Environments of other libraries, stepped sequentially in this process.

`E` denotes the number of environments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec, TimeStep
from .arrival import arrival, checked_actions
from .attributes import attributes, set_attributes
from .failures import RefusedError, failure, one_sentence
from .forms import Convert, fits
from .mujoco_state import MujocoState
from .observations import Group, MisfitError, Part

_FLOATS = (float, np.float64, np.float32)
_BOOLS = (bool, np.bool_)


class SequentialVector:
    """Base of adapters: restarts, time steps, and checks of what the environments return.

    An adapter defines how environment e begins (`_begin`) and is stepped (`_advance`), and the
    objects whose attributes are its state (`_parts`).

    Attributes:
      spec: of one of them.
      num_envs: E.
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
        self.spec, self.num_envs = spec, num_envs
        self._see, self._act, self._limit = see, act, limit
        self.is_strict = False
        self._lengths = np.zeros(num_envs, np.int64)  # transitions of the running episodes
        self._starts = np.ones(num_envs, bool)  # its next step is the first of an episode
        self._num_steps = -1  # since the last reset(), which is step 0

    def reset(self) -> TimeStep:
        """Starts a new episode in every environment: first steps, `[E, ...]`."""
        self._starts[:], self._num_steps = True, -1
        space = self.spec.actions
        return self.step(np.zeros((self.num_envs, *space.shape), space.dtype))

    def step(self, actions: np.ndarray) -> TimeStep:
        """Takes actions `[E, ...]` and returns the time steps that follow, `[E, ...]`.

        Raises:
          ValueError: an action has the wrong shape or kind or is not finite, a reward or an
            observation is not finite as a float32, an observation does not fit its space, a reward
            is not one number, the end of an episode is neither true nor false, or an environment
            raised an error or called `sys.exit()`.
        """
        given = self._act(checked_actions(actions, self.spec.actions, self.num_envs))
        first, self._num_steps = self._starts, self._num_steps + 1
        seen = self.spec.observations
        observation = np.empty((self.num_envs, *seen.shape), seen.dtype)
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        for e in range(self.num_envs):
            try:
                found = self._begin(e) if first[e] else self._advance(e, given[e])
            except (Exception, SystemExit) as error:
                where = "in reset(), at" if first[e] else "at"
                what = f"environment {e} failed {where} step {self._num_steps}"
                raise failure(what, error) from error
            if not first[e]:
                found, gain, over, cut_off = found
                reward[e] = gain if type(gain) in _FLOATS else self._number(gain, e)
                terminated[e] = over if type(over) in _BOOLS else self._bool(over, "terminated", e)
                truncated[e] = (
                    cut_off if type(cut_off) in _BOOLS else self._bool(cut_off, "truncated", e)
                )
            self._read(found, observation[e], e)
        self._check_rewards(reward)
        self._check_observations(observation)
        self._lengths = np.where(first, 0, self._lengths + 1)
        if self._limit is not None:
            truncated |= self._lengths >= self._limit
        self._starts = terminated | truncated
        return arrival(observation, reward, terminated, truncated, first)

    def recorded(self, observations: Any, actions: Any) -> tuple[np.ndarray, np.ndarray]:
        """Recorded observations `[n, ...]` and actions `[m, ...]`, in the form of the spec.

        Args:
          observations: as an environment returns them, batched: trees of arrays.
          actions: as an environment takes them. Continuous ones are clipped.

        Raises:
          ValueError: an observation does not fit its space, or an action is none of the space.
        """
        seen, taken = self.spec.observations, self.spec.actions
        first = next(iter(leaves_of(observations)))
        found = np.empty((len(first), *seen.shape), seen.dtype)
        for t in range(len(found)):
            try:
                self._see.read(part_of(observations, t), found[t])
            except MisfitError as error:
                raise RefusedError(f"observation{error.where} {t} {error.what}.") from error
        given = np.asarray(actions)
        if not isinstance(taken, specs.DiscreteArray):
            flat = given.reshape(len(given), -1).astype(taken.dtype)
            return found, np.clip(flat, taken.minimum, taken.maximum)
        known = self._act(np.arange(taken.num_values, dtype=np.int32))
        number = {tuple(np.ravel(action).tolist()): i for i, action in enumerate(known)}
        numbers = [number.get(tuple(np.ravel(action).tolist()), -1) for action in given]
        if -1 in numbers:
            raise RefusedError(f"action {(t := numbers.index(-1))} is {given[t]}, which is none.")
        return found, np.array(numbers, np.int32)

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

    def _number(self, value: Any, e: int) -> float:
        array = _array(value)
        if array.size != 1 or array.dtype.kind not in "biuf":
            raise self._refused("reward", e, f"is {value!r:.60}; it must be one number")
        return array.item()

    def _bool(self, value: Any, name: str, e: int) -> bool:
        array = _array(value)
        if array.size != 1 or array.dtype.kind not in "biu" or array.item() not in (0, 1):
            raise self._refused(name, e, f"is {value!r:.60}; it must be True or False")
        return bool(array.item())

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


def part_of(batch: Any, index: int) -> Any:
    """One of a batch of observations: of a tree of arrays with a leading axis."""
    if isinstance(batch, Mapping):
        return {key: part_of(value, index) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(part_of(value, index) for value in batch)
    return batch[index]


def leaves_of(batch: Any) -> Iterator[Any]:
    """The arrays of a tree of them."""
    if isinstance(batch, Mapping | tuple):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from leaves_of(part)
    else:
        yield batch


def _array(value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except Exception:  # lists of several lengths
        return np.array(None)
