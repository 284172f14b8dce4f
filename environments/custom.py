"""Environments of other packages: functions and classes that make one, or a vector of them."""

import inspect
from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from ..datatypes import DEFAULT_LIMIT, EnvironmentSpec, VectorEnvironment
from .arrival import integer_seeds
from .dm_env_adapter import DmEnvVector
from .failures import closed_on_error, one_sentence
from .switches import COMMON, parameters, values

GROUP = "retrax.environments"  # of entry points
LIMIT = "max_episode_steps"  # a switch of every environment that is not a vector
_INTERFACE = ("num_envs", "spec", "reset", "step", "render", "close")


def make_custom(
    maker: Callable[..., Any],
    name: str,
    *,
    seed: int,
    num_envs: int,
    render: bool,
    evaluation: bool = False,
    switches: dict[str, Any],
) -> VectorEnvironment:
    """Makes a vector of environments with a function or a class of another package.

    If `maker` has the parameters `num_envs` and `seed`, it returns a `VectorEnvironment`. Any other
    `maker` is called once for each environment and returns a `gymnasium.Env`, a
    `dm_env.Environment` or a `PureEnvironment`. If it has a parameter `seed`, it gets a different
    one each time; if it has a parameter `render_mode` and `render` is true, it gets "rgb_array".
    Its other parameters are switches, and so is `max_episode_steps`, after which episodes are cut
    off.

    Args:
      maker: a function or a class.
      name: of the environment, for errors.
      seed: >= 0. The episodes of environment e depend on `seed` and e alone, if the environment
        draws its random numbers from the seed.
      num_envs: E >= 1.
      render: whether `render()` will be called.
      evaluation: whether to leave out the switches that an attribute `training_only` of `maker`
        names.
      switches: keyword arguments of `maker`.

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
    names, seeds = parameters(maker), [int(s) for s in integer_seeds(seed, num_envs)]
    is_vector, limit = names >= COMMON, {}
    defaults = {} if is_vector else {LIMIT: DEFAULT_LIMIT}
    switches = values(switches, maker, name, defaults=defaults, evaluation=evaluation)
    if not is_vector and LIMIT in switches and LIMIT not in names:
        limit = {LIMIT: switches.pop(LIMIT)}
    if is_vector:
        made = _call(maker, name, {**switches, "num_envs": num_envs, "seed": seed})
        with closed_on_error([made] if hasattr(made, "close") else []):
            check_vector(made, f"the result of {name}", num_envs)
        return made
    if render and "render_mode" in names:
        switches = {"render_mode": "rgb_array", **switches}
    each = [{**switches, "seed": s} if "seed" in names else switches for s in seeds]
    environments: list[Any] = []
    with closed_on_error(environments):
        for arguments in each:
            environments.append(_call(maker, name, arguments))
    return _vector(environments, name, seed, limit)


def _call(maker: Callable[..., Any], name: str, arguments: dict[str, Any]) -> Any:
    try:
        inspect.signature(maker).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{name} cannot be made: {error}.") from error
    with one_sentence(f"{name} cannot be made"):
        return maker(**arguments)


def check_vector(made: Any, name: str, num_envs: int) -> None:
    """Refuses what is not a `VectorEnvironment`, by the types of its attributes.

    Args:
      made: anything; Gymnasium's own vectors have the same names of attributes.
      name: of it, for errors.
      num_envs: that it must have.

    Raises:
      ValueError: an attribute is missing, of another type, or raises an error.
    """
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
    if isinstance(getattr(environments[0], "spec", None), EnvironmentSpec):
        from .pure import PureVector

        return PureVector(environments[0], num_envs=len(environments), seed=seed)
    if all(isinstance(one, dm_env.Environment) for one in environments):
        return DmEnvVector(environments, **limit)
    import gymnasium  # takes longer than the rest

    if not all(isinstance(one, gymnasium.Env) for one in environments):
        raise ValueError(
            f"{name} must return a gymnasium.Env or a dm_env.Environment; the type of its result "
            f"is {type(environments[0]).__name__}."
        )
    from .gymnasium_adapter import GymnasiumVector

    make_one = iter(environments).__next__
    return GymnasiumVector(make_one, num_envs=len(environments), seed=seed, **limit)
