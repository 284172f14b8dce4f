"""Environments of other libraries, stepped sequentially in this process.

`E` denotes the number of environments.
"""

import functools
import logging
import random  # noqa: TID251 - it is watched, and nothing is drawn
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec, TimeStep
from .arrival import Convert, arrival, check_finite, check_legal, check_limit, checked_actions
from .failures import RefusedError, close_all, failure, one_sentence
from .mujoco import MujocoState
from .observations import Group, MisfitError, Part
from .plain_data import Attributes

# Types that need no check, NumPy's letters of other kinds, and what is allowed.
_NUMBER = (float, np.float64, np.float32), "biuf", "one number"
_FLAG = (bool, np.bool_), "biu", "True or False"
_WATCHED = 10  # steps after a reset

Result: TypeAlias = tuple[Any, Any, Any, Any]
"""Observation, reward, terminated and truncated of an environment, not checked yet."""


class SequentialVector:
    """Base of adapters: restarts, time steps, and checks of what the environments return.

    An adapter keeps its environments in `_environments`, and defines how environment e begins
    (`_begin`: its observation) and is stepped (`_advance`), and what has its state (`_parts`).
    `see` checks and converts observations (by the library's own rules, too, if `is_strict`), `act`
    checked actions `[E, ...]`, which it alone clips; `limit` is of the transitions of episodes.
    """

    _COUNTERS: tuple[str, ...] = ("_lengths", "_starts", "_num_steps")
    _environments: list[Any]
    _begin: Callable[[int], Any]
    _advance: Callable[[int, np.ndarray], Result]

    def __init__(
        self,
        spec: EnvironmentSpec,
        see: Part | Group,
        act: Convert,
        num_envs: int,
        *,
        limit: int | None,
    ) -> None:
        check_limit(limit)
        for name in ("observations", "actions"):
            if 0 in getattr(spec, name).shape:
                raise ValueError(f"{name} have no numbers: there is nothing to learn.")
        self.spec, self.num_envs = spec, num_envs
        self.see, self.act, self._limit = see, act, limit
        self.is_strict = False
        self._lengths = np.zeros(num_envs, np.int64)  # transitions of the running episodes
        self._starts = np.ones(num_envs, bool)  # its next step is the first of an episode
        self._num_steps = -1  # since the last reset(), which is step 0

    def reset(self) -> TimeStep:
        """Starts a new episode in every environment: first steps, `[E, ...]`."""
        self._starts, self._num_steps = np.ones(self.num_envs, bool), -1
        space = self.spec.actions
        return self.step(np.zeros((self.num_envs, *space.shape), space.dtype))

    def step(self, actions: np.ndarray) -> TimeStep:
        """Steps every environment: from actions `[E, ...]` to time steps `[E, ...]`."""
        given = self.act(checked_actions(actions, self.spec.actions, self.num_envs))
        first, self._num_steps = self._starts, self._num_steps + 1
        seen = self.spec.observations
        observation = np.empty((self.num_envs, *seen.shape), seen.dtype)
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        before = _global_generators() if self._num_steps < _WATCHED else None
        for e, (found, gain, over, cut_off) in enumerate(self._results(given, first)):
            reward[e] = self._one("reward", _NUMBER, gain, e)
            terminated[e] = self._one("terminated", _FLAG, over, e)
            truncated[e] = self._one("truncated", _FLAG, cut_off, e)
            try:
                self.see.read(found, observation[e], strict=self.is_strict)
            except MisfitError as error:
                raise self._refused(f"observation{error.where}", e, error.what) from error
        if before is not None and before != _global_generators():
            _warn_of_global_draws()
        check_finite(reward, observation, self._num_steps, self.see.name)
        check_legal(observation, terminated & ~first, self.spec, self._num_steps)
        self._lengths = np.where(first, 0, self._lengths + 1)
        if self._limit is not None:
            truncated |= self._lengths >= self._limit
        self._starts = terminated | truncated
        return arrival(observation, reward, terminated, truncated, first)

    def close(self) -> None:
        """Closes the environments. Calling it twice does no harm."""
        environments, self._environments = self._environments, []
        close_all(environments)

    def recorded(self, observations: Any, actions: Any) -> tuple[np.ndarray, np.ndarray]:
        """Recorded observations `[n, ...]` and actions `[m, ...]`, in the form of the spec.

        Actions are not clipped. A ValueError names an observation or an action that is none.
        """
        seen, taken = self.spec.observations, self.spec.actions
        leaf = observations
        while isinstance(leaf, Mapping | tuple):
            leaf = next(iter(leaf.values() if isinstance(leaf, Mapping) else leaf))
        found = np.empty((len(leaf), *seen.shape), seen.dtype)
        for t in range(len(found)):
            try:
                self.see.read(part_of(observations, t), found[t])
            except MisfitError as error:
                raise RefusedError(f"observation{error.where} {t} {error.what}.") from error
        given = np.asarray(actions)
        if not isinstance(taken, specs.DiscreteArray):
            return found, given.reshape(len(given), -1)
        known = self.act(np.arange(taken.num_values, dtype=np.int32))
        number = {tuple(np.ravel(action).tolist()): i for i, action in enumerate(known)}
        numbers = [number.get(tuple(np.ravel(action).tolist()), -1) for action in given]
        if -1 in numbers:
            raise RefusedError(f"action {(t := numbers.index(-1))} is {given[t]}: no such action.")
        return found, np.array(numbers, np.int32)

    def state(self) -> dict[str, Any]:
        """See `Resumable`. The attributes of the environments and of their wrappers."""
        parts = [[part.state() for part in self._parts(e)] for e in range(self.num_envs)]
        return {**{name: getattr(self, name) for name in self._COUNTERS}, "environments": parts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Resumable`."""
        for e, kept in enumerate(state["environments"]):
            for part, found in zip(self._parts(e), kept, strict=True):
                part.restore(found)
        for name in self._COUNTERS:
            setattr(self, name, state[name])

    def _parts(self, e: int) -> list[Attributes | MujocoState]:
        """What has the state of environment e; a ValueError if nothing has."""
        raise ValueError(f"{type(self).__name__} has no state that can be saved")

    def _results(self, given: np.ndarray, first: np.ndarray) -> Iterable[Result]:
        """What each environment returns; where `first`, it begins an episode."""
        for e in range(self.num_envs):
            try:
                if first[e]:
                    result = self._begin(e), 0.0, False, False
                else:
                    result = self._advance(e, given[e])
            except (Exception, SystemExit) as error:
                where = "in reset(), at" if first[e] else "at"
                what = f"environment {e} failed {where} step {self._num_steps}"
                raise failure(what, error) from error
            yield result

    def _one(self, name: str, kind: tuple[Any, ...], value: Any, e: int) -> Any:
        types, kinds, allowed = kind
        if type(value) in types:
            return value
        try:
            array = np.asarray(value)
        except Exception:  # lists of several lengths
            array = np.array(None)
        is_one = array.size == 1 and array.dtype.kind in kinds
        if not is_one or (kind is _FLAG and array.item() not in (0, 1)):
            raise self._refused(name, e, f"is {value!r:.60}; it must be {allowed}")
        return array.item()

    def _refused(self, name: str, e: int, what: str) -> RefusedError:
        return RefusedError(f"the {name} of environment {e} at step {self._num_steps} {what}.")


def check_alike(environments: Sequence[Any], *names: str) -> list[Any]:
    """Refuses environments that are one object or differ; returns the spaces of one.

    `names` are of attributes or methods that give what must be equal in all of them.
    """
    if len({id(environment) for environment in environments}) < len(environments):
        raise ValueError(
            "each call must make a new environment, but two calls returned the same one."
        )
    found: list[list[Any]] = []
    for e, environment in enumerate(environments):
        with one_sentence(f"the spaces of environment {e} cannot be read"):
            read = [getattr(environment, name) for name in names]
            found.append([value() if callable(value) else value for value in read])
        for name, here, there in zip(names, found[e], found[0], strict=True):
            if here != there:
                raise ValueError(
                    f"the {name} of environment {e} is {here}, but of environment 0 it is {there}."
                )
    return found[0]


def part_of(batch: Any, index: int) -> Any:
    """One of a batch of observations: of a tree of arrays with a leading axis."""
    if isinstance(batch, Mapping):
        return {key: part_of(value, index) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(part_of(value, index) for value in batch)
    return batch[index]


def _global_generators() -> Any:
    state: Any = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - as above; of any kind
    return random.getstate(), str(state.get("pos", state)), bytes(state.get("key", b""))


@functools.cache  # once
def _warn_of_global_draws() -> None:
    logging.getLogger("retrax").warning(
        "An environment draws from np.random or random instead of self.np_random: unless it seeds "
        "them itself, the same command gives a different curve."
    )
