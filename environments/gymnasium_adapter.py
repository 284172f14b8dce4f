"""Gymnasium's environments, its vectors of them and EnvPool's, in arrival form.

`E` denotes the number of environments.
"""

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from ..datatypes import DEFAULT_LIMIT
from .arrival import MASK, integer_seeds, is_pool
from .failures import RefusedError, close_quietly, closed_on_error, drawn, one_sentence
from .mujoco import MujocoState, choose_backend, drawing
from .plain_data import Attributes
from .sequential import Result, SequentialVector, check_alike, part_of
from .spaces import convert

_WRAPPERS = "gymnasium.wrappers."
_STATISTICS = (
    "Each environment has its own running statistics of {}: a resumed run keeps them, and "
    "evaluations start with new ones."
)
_JOIN_SECONDS = 1.0
_RETURNED = ("observation", "reward", "terminated", "truncated", "info")


class GymnasiumVector(SequentialVector):
    """E Gymnasium environments, stepped sequentially in this process.

    `max_episode_steps` of None leaves the limit to the environments; those without one get
    `datatypes.DEFAULT_LIMIT`. `statistics` is a sentence on running statistics of their wrappers,
    or empty.
    """

    # gymnasium.vector.SyncVectorEnv is 20 % slower on CartPole (it copies twice and collects
    # `info`), and does not report which environment returned what is wrong.

    _COUNTERS = (*SequentialVector._COUNTERS, "_seeds")

    def __init__(
        self,
        environments: Sequence[gymnasium.Env],
        *,
        seed: int = 0,
        max_episode_steps: int | None = None,
    ) -> None:
        self._environments: list[gymnasium.Env] = [*environments]
        with closed_on_error(environments):
            self._numbers = [int(s) for s in integer_seeds(seed, len(environments))]
            seen, taken = check_alike(self._environments, "observation_space", "action_space")
            has_mask = hasattr(self._environments[0].unwrapped, MASK)
            self._informs, seen = _informed(has_mask, seen, taken)
            own = getattr(self._environments[0].spec, "max_episode_steps", None)
            limit = max_episode_steps if own or max_episode_steps is not None else DEFAULT_LIMIT
            self.frames_per_second = (self._environments[0].metadata or {}).get("render_fps")
            wrappers = _wrappers(self._environments[0])
            names = [type(each).__name__ for each in wrappers if _running_statistics(each)]
            self.statistics = _STATISTICS.format(" and ".join(names)) if names else ""
            converted = convert(seen, taken, limit or own, self.statistics)
            super().__init__(*converted, len(environments), limit=limit)
            self.seed_again()
            self._simulations: list[list[MujocoState]] = []  # of Gymnasium's MuJoCo environments
            for one in self._environments:
                parts = [vars(one.unwrapped).get(name) for name in ("model", "data")]
                is_known = all(type(part).__module__.startswith("mujoco.") for part in parts)
                self._simulations.append([MujocoState(*parts)] if is_known else [])

    def seed_again(self) -> None:
        """Lets the next reset begin as the first one, and seeds spaces, for those who sample."""
        self._seeds: list[int | None] = [*self._numbers]
        for environment, number in zip(self._environments, self._numbers, strict=True):
            inner = environment.unwrapped
            for name in ("observation_space", "action_space"):
                space = copy.deepcopy(getattr(inner, name))  # not the one of the class
                with contextlib.suppress(AttributeError):  # a property
                    setattr(inner, name, space)
                getattr(inner, name).seed(number)

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`."""
        environment = self._environments[0]
        if environment.render_mode != "rgb_array":
            raise RefusedError(
                "this environment was made without rendering: use make(..., render=True), or "
                f'render_mode="rgb_array" in your own function (it is {environment.render_mode!r}).'
            )
        if not hasattr(environment.unwrapped, "mujoco_renderer"):
            return drawn(environment.render)
        choose_backend()
        return drawn(drawing()(environment.render))

    def _begin(self, e: int) -> Any:
        seed, self._seeds[e] = self._seeds[e], None
        result = self._environments[e].reset(seed=seed)
        return _checked(f"reset() of environment {e}", result, self._informs)[0]

    def _advance(self, e: int, action: np.ndarray) -> Result:
        results = self._environments[e].step(action)
        return _checked(f"step() of environment {e}", results, self._informs)

    def _parts(self, e: int) -> list[Attributes | MujocoState]:
        """The environment and its wrappers; their specs and arguments never change."""
        found: list[Attributes | MujocoState] = []
        for wrapper in _wrappers(self._environments[e]):
            statistics = _running_statistics(wrapper)
            found.append(Attributes(wrapper, {"env", "_cached_spec", "_saved_kwargs", *statistics}))
            found += map(Attributes, statistics.values())
        simulation, inner = self._simulations[e], self._environments[e].unwrapped
        simulated = {"model", "data", "mujoco_renderer"} if simulation else set()
        return [*found, Attributes(inner, {"spec"} | simulated), *simulation]


def _informed(has_mask: bool, seen: Any, taken: Any) -> tuple[bool, Any]:
    """Whether masks of legal actions are in `info`, as Taxi's are, and the space with them."""
    is_seen = MASK in getattr(seen, "spaces", ())
    if is_seen or not has_mask or not isinstance(taken, spaces.Discrete):
        return False, seen
    return True, spaces.Dict({"observation": seen, MASK: spaces.MultiBinary(int(taken.n))})


def _checked(what: str, results: Any, informs: bool) -> Any:
    """The results of `reset` or `step` without `info`, whose mask is put beside the observation.

    Refuses what Gym before 0.26 returned, and what is no result at all.
    """
    names = ("observation", "info") if "reset" in what else _RETURNED
    if not isinstance(results, tuple) or len(results) != len(names):
        kind = type(results).__name__
        found = f"{len(results)} values" if isinstance(results, tuple) else f"one of type {kind}"
        raise RefusedError(f"{what} must return ({', '.join(names)}), got {found}.")
    observation, *others, info = results
    if not informs:
        return observation, *others
    if not np.all(info.get(f"_{MASK}", MASK in info)):  # a vector's says which environments have it
        raise RefusedError(
            f"{what} must return an info with the {MASK} of every environment, as it has an "
            f"attribute of this name, got the keys {[*info]}."
        )
    return {"observation": observation, MASK: info[MASK]}, *others


def _wrappers(environment: gymnasium.Env) -> Iterator[gymnasium.Wrapper]:
    while isinstance(environment, gymnasium.Wrapper):
        yield environment
        environment = environment.env


def _running_statistics(wrapper: gymnasium.Wrapper) -> dict[str, Any]:
    """The running means of a wrapper such as NormalizeObservation, by attribute."""
    return {
        name: value
        for name, value in vars(wrapper).items()
        if type(value).__name__ == "RunningMeanStd" and type(value).__module__.startswith(_WRAPPERS)
    }


class GymnasiumVectorAdapter(SequentialVector):
    """What `from_gymnasium_vector` makes."""

    def __init__(self, vector: Any, *, seed: int | None) -> None:
        _check_vector(vector, seed)
        self._vector, self._options = vector, {} if seed is None else {"seed": seed}
        self.frames_per_second = (vector.metadata or {}).get("render_fps")
        with one_sentence("the vector's spaces cannot be read"):
            seen, acted = vector.single_observation_space, vector.single_action_space
            told = getattr(vector.spec, "config", vector.spec)  # a pool's spec has a config
            limit = getattr(told, "max_episode_steps", None)
            call = getattr(vector.unwrapped, "call", None)  # of a method of each environment
            has_mask = call is not None and all(call("has_wrapper_attr", MASK))
            self._informs, seen = _informed(has_mask, seen, acted)
        super().__init__(*convert(seen, acted, limit), int(vector.num_envs), limit=None)
        self._has_failed = False

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`."""
        return drawn(lambda: self._vector.render()[0])

    def close(self) -> None:
        """Closes the vector. Calling it twice does no harm."""
        inner = self._vector.unwrapped
        if self._has_failed and hasattr(inner, "processes"):
            for process in inner.processes:  # Gymnasium would wait for answers of dead ones
                process.kill()
                process.join(_JOIN_SECONDS)
            inner.closed = True
        close_quietly(self._vector, "the vector", has_failed=self._has_failed)

    def _parts(self, e: int) -> list[Attributes | MujocoState]:
        raise ValueError(f"{type(self._vector).__name__} has no state that can be saved")

    def _results(self, given: np.ndarray, first: np.ndarray) -> Iterable[Result]:
        if self._num_steps == 0:
            options, self._options = self._options, {}
            found = self._called("reset", lambda: self._vector.reset(**options))
            (batch,) = _checked("the vector's reset()", found, self._informs)
            numbers = [np.zeros(self.num_envs)] * 3
        else:
            found = self._called("step", lambda: self._vector.step(given))
            batch, *numbers = _checked("the vector's step()", found, self._informs)
        columns = [np.asarray(values) for values in numbers]
        for name, column in zip(_RETURNED[1:4], columns, strict=True):
            if column.shape != (self.num_envs,):
                raise RefusedError(
                    f"the {name} at step {self._num_steps} is {column.dtype} {[*column.shape]}; it "
                    f"must be one number for each of {self.num_envs} environments."
                )
        for e, result in enumerate(zip(*columns, strict=True)):
            with one_sentence(f"the observations at step {self._num_steps} have too few parts"):
                part = part_of(batch, e)
            # Where an episode has begun, what came with its first observation means nothing.
            yield (part, *((0.0, False, False) if first[e] else result))

    def _called(self, name: str, function: Callable[[], Any]) -> Any:
        self._has_failed = True
        with one_sentence(f"the vector failed in {name}(), at step {self._num_steps}"):
            results = function()
        self._has_failed = False
        return results


def _check_vector(vector: Any, seed: int | None) -> None:
    """Refuses whatever does not begin an episode in the step after the last one of another."""
    if not isinstance(vector, VectorEnv):
        raise ValueError(
            "vector must be a gymnasium.vector.VectorEnv, as a pool of EnvPool 1.2 is, got a "
            f"{type(vector).__name__}."
        )
    pool = is_pool(vector)
    if pool and seed is not None:
        raise ValueError("seed must be None for EnvPool: a pool takes its seed when made.")
    if pool and vector.is_async:
        raise ValueError(
            f"a pool must have a batch_size of all its {vector.num_envs} environments, "
            f"got {vector.config['batch_size']}: smaller ones are asynchronous."
        )
    mode = (vector.metadata or {}).get("autoreset_mode")
    if getattr(mode, "value", mode) != AutoresetMode.NEXT_STEP.value:
        raise ValueError(
            f'metadata["autoreset_mode"] of {type(vector).__name__} must be '
            f"AutoresetMode.NEXT_STEP, got {mode}: gymnasium.make_vec(..., "
            'vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP}) makes such a vector.'
        )
