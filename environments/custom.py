"""Environments of other packages: functions and classes that make one, or a vector of them."""

import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs

from ..datatypes import DEFAULT_LIMIT, EnvironmentSpec, VectorEnvironment
from .arrival import integer_seeds
from .dm_env_adapter import DmEnvVector
from .failures import closed_on_error, one_sentence
from .pure import PureVector
from .switches import COMMON, parameters, values

GROUP = "retrax.environments"  # of entry points
LIMIT = "max_episode_steps"  # a switch of every environment that is not a vector
_INTERFACE = ("num_envs", "spec", "reset", "step", "render", "close")


class Request(NamedTuple):
    """Arguments of `make`, besides the id."""

    seed: int
    num_envs: int
    render: bool
    evaluation: bool
    switches: dict[str, Any]


def make_custom(maker: Any, name: str, request: Request) -> VectorEnvironment:
    """Makes a vector of environments with a function or a class of another package.

    Args:
      maker: a function or a class; `make` says how it is called.
      name: of the environment, for errors.
      request: see `make`.

    Raises:
      ValueError: `maker` cannot be called, has no such switch, needs one that is missing, raises an
        error, or returns something that is not an environment.
      ImportError: it needs a module that is not installed.
    """
    if not callable(maker):
        raise ValueError(
            f"{name} must be a function or a class that makes an environment; its type is "
            f"{type(maker).__name__}."
        )
    seed, num_envs, render, evaluation, switches = request
    names, seeds = parameters(maker), [int(s) for s in integer_seeds(seed, num_envs)]
    is_vector = names >= COMMON
    defaults = {} if is_vector else {LIMIT: DEFAULT_LIMIT}
    switches = values(switches, maker, name, defaults=defaults, evaluation=evaluation)
    if is_vector:
        made = _call(maker, name, {**switches, "num_envs": num_envs, "seed": seed})
        with closed_on_error([made] if hasattr(made, "close") else []):
            return as_vector(made, f"the result of {name}", num_envs=num_envs, seed=seed)
    limit = {LIMIT: switches.pop(LIMIT)} if LIMIT in switches.keys() - names else {}
    if render and "render_mode" in names:
        switches = {"render_mode": "rgb_array", **switches}
    environments: list[Any] = []
    with closed_on_error(environments):
        for each in seeds:
            seeded = {**switches, "seed": each} if "seed" in names else switches
            environments.append(_call(maker, name, seeded))
    return _vector(environments, name, seed, limit)


def _call(maker: Callable[..., Any], name: str, arguments: dict[str, Any]) -> Any:
    try:
        inspect.signature(maker).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{name} cannot be made: {error}.") from error
    with one_sentence(f"{name} cannot be made"):
        return maker(**arguments)


def from_gymnasium_vector(vector: Any, *, seed: int | None = None) -> VectorEnvironment:
    """A `gymnasium.vector.VectorEnv`, or a pool of EnvPool, as a `VectorEnvironment`.

    Each environment takes the steps that it would take alone. The vector's autoreset mode
    (`metadata["autoreset_mode"]`) must be NEXT_STEP, Gymnasium's default and EnvPool's: the step
    after a last one begins the next episode.

    Spaces become what those of single environments become; see `gymnasium_spaces`.

    Args:
      vector: the environments, owned by the result.
      seed: of the first `reset`; as Gymnasium's vectors take it, environment e gets `seed + e`.
        None gives none. EnvPool takes its seed where a pool is made.

    Raises:
      ValueError: it is neither, it has another autoreset mode, a space is not supported, or a pool
        is asynchronous (`batch_size` below `num_envs`).
    """
    from .gymnasium_vector import GymnasiumVectorAdapter  # its import takes longer than the rest

    return GymnasiumVectorAdapter(vector, seed=seed)


def as_vector(made: Any, name: str, *, num_envs: int, seed: int) -> VectorEnvironment:
    """A `VectorEnvironment` of what a user made.

    Args:
      made: one already, what `from_gymnasium_vector` takes, or one `gymnasium.Env` or
        `dm_env.Environment`.
      name: of it, for errors.
      num_envs: that it must have.
      seed: of Gymnasium's environments, where they take one from `reset`.

    Raises:
      ValueError: it is none of these, or has another number of environments.
    """
    single: tuple[type, ...] = (dm_env.Environment,)
    if "gymnasium" in sys.modules:  # whose import takes longer than the rest
        from . import gymnasium_vector

        if gymnasium_vector.is_gymnasium_vector(made):
            takes = not gymnasium_vector.is_pool(made)
            made = gymnasium_vector.GymnasiumVectorAdapter(made, seed=seed if takes else None)
        single = (*single, sys.modules["gymnasium"].Env)
    if not isinstance(made, single):
        _check_vector(made, name, num_envs)
        return made
    if num_envs != 1:
        raise ValueError(
            f"{name} must have {num_envs} environments (num_envs), but it is a single "
            f"{type(made).__name__}: give a vector, or a function that makes one."
        )
    return _vector([made], name, seed, {})


def _check_vector(made: Any, name: str, num_envs: int) -> None:
    """Refuses what is not a `VectorEnvironment`, by the types of its attributes."""
    kind = type(made).__name__
    with one_sentence(f"{name} cannot be read"):
        missing = [attribute for attribute in _INTERFACE if not hasattr(made, attribute)]
        found = {attribute: getattr(made, attribute, None) for attribute in _INTERFACE}
    if missing:
        raise ValueError(
            f"{name} must be a VectorEnvironment, but it is a {kind}, which has no "
            f"{', '.join(missing)}."
        )
    for method in _INTERFACE[2:]:
        if not callable(found[method]):
            raise ValueError(f"{name} must be a VectorEnvironment, but its {method} is no method.")
    spec, count = found["spec"], found["num_envs"]
    if not isinstance(spec, EnvironmentSpec) or not isinstance(spec.observations, specs.Array):
        raise ValueError(
            f"{name} must be a VectorEnvironment, but it is a {kind} whose spec is "
            f"{spec!r:.60}, not a retrax.datatypes.EnvironmentSpec of arrays."
        )
    if not isinstance(count, int | np.integer) or count != num_envs:
        raise ValueError(f"{name} has {count!r} environments instead of {num_envs}.")


def _vector(
    environments: list[Any], name: str, seed: int, limit: dict[str, int]
) -> VectorEnvironment:
    """A vector of single environments."""
    if isinstance(getattr(environments[0], "spec", None), EnvironmentSpec):
        return PureVector(environments[0], num_envs=len(environments), seed=seed)
    if all(isinstance(one, dm_env.Environment) for one in environments):
        return DmEnvVector(environments, **limit)
    import gymnasium  # takes longer than the rest

    if hasattr(environments[0], "single_action_space") or hasattr(environments[0], "all_env_ids"):
        raise ValueError(
            f"{name} returns a vector of environments, so it must have the parameters num_envs and "
            "seed: it is called once for all of them."
        )
    if not all(isinstance(one, gymnasium.Env) for one in environments):
        raise ValueError(
            f"{name} must return a gymnasium.Env or a dm_env.Environment; the type of its result "
            f"is {type(environments[0]).__name__}."
        )
    from .gymnasium_adapter import GymnasiumVector

    make_one = iter(environments).__next__
    return GymnasiumVector(make_one, num_envs=len(environments), seed=seed, **limit)
