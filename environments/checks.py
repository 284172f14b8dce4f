"""A conformance test of environments."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import dm_env
import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec, TimeStep, VectorEnvironment
from .sequential import SequentialVector

FIRST, MID, LAST = (int(kind) for kind in dm_env.StepType)


def check_environment(environment: VectorEnvironment, *, steps: int = 200, seed: int = 0) -> None:
    """Steps an environment with random actions and raises at the first violation of the interface.

    It checks the specs, and at each time step: types and shapes; finite values within the
    bounds; first steps after last ones and nowhere else, with reward 0 and discount 1; discount 0
    on last steps only; arrays that the next step does not overwrite. It resets the environment
    before and after. What a Gymnasium or a dm_env environment returns must also be in its space by
    the rules of these libraries (`Space.contains`, `Array.validate`), which know exact types and
    the bounds of floats.

    Args:
      environment: E of them. It is left at the start of an episode.
      steps: >= 1, steps in each of them. Ends are tested only if episodes end.
      seed: >= 0, of the actions.

    Raises:
      ValueError: names what is wrong (observation, reward, discount, step_type or a spec), in which
        environment and at which step (0 is the reset), what was found and what is allowed.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}.")
    with _strict(environment):
        _check(environment, steps, seed)


@contextlib.contextmanager
def _strict(environment: VectorEnvironment) -> Iterator[None]:
    """Asks an adapter to compare observations with their space by the library's own rules."""
    if not isinstance(environment, SequentialVector):
        yield
        return
    environment.is_strict = True
    try:
        yield
    finally:
        environment.is_strict = False


def _check(environment: VectorEnvironment, steps: int, seed: int) -> None:
    spec, generator = environment.spec, np.random.default_rng(seed)
    _check_spec(spec)
    timestep = environment.reset()
    _check_arrays(timestep, spec, environment.num_envs, 0)
    _check_values(timestep, np.ones(environment.num_envs, bool), spec, 0)
    for step in range(1, steps + 1):
        last, observation = timestep.step_type == LAST, timestep.observation.copy()
        following = environment.step(_random_actions(spec, environment.num_envs, generator))
        _check_kept(timestep.observation, observation, step)
        _check_arrays(following, spec, environment.num_envs, step)
        _check_values(following, last, spec, step)
        timestep = following
    timestep = environment.reset()
    _check_arrays(timestep, spec, environment.num_envs, steps + 1)
    _check_values(timestep, np.ones(environment.num_envs, bool), spec, steps + 1)


def _random_actions(
    spec: EnvironmentSpec, num_envs: int, generator: np.random.Generator
) -> np.ndarray:
    actions, shape = spec.actions, (num_envs, *spec.actions.shape)
    if isinstance(actions, specs.DiscreteArray):
        return generator.integers(actions.num_values, size=shape, dtype=np.int32)
    return generator.uniform(actions.minimum, actions.maximum, shape).astype(np.float32)


def _check_spec(spec: EnvironmentSpec) -> None:
    actions, seen = spec.actions, spec.observations
    if not isinstance(actions, specs.BoundedArray):
        raise ValueError(f"spec.actions must be a DiscreteArray or a BoundedArray, got {actions}.")
    wanted = np.int32 if isinstance(actions, specs.DiscreteArray) else np.float32
    if actions.dtype != wanted:
        raise ValueError(f"spec.actions must be {np.dtype(wanted)}, got {actions.dtype}.")
    if not (np.isfinite(actions.minimum).all() and np.isfinite(actions.maximum).all()):
        raise ValueError(f"spec.actions must have finite bounds, got {actions}.")
    if seen.dtype != np.float32 and not (seen.dtype == np.uint8 and len(seen.shape) == 3):
        raise ValueError(
            "spec.observations must be float32, or uint8 [height, width, channels], got "
            f"{seen.dtype} {[*seen.shape]}."
        )


def _check_arrays(timestep: TimeStep, spec: EnvironmentSpec, num_envs: int, step: int) -> None:
    """Types and shapes, which are the same for all environments."""
    wanted = {
        "step_type": ((), np.dtype(np.int32)),
        "reward": ((), np.dtype(np.float32)),
        "discount": ((), np.dtype(np.float32)),
        "observation": (spec.observations.shape, spec.observations.dtype),
    }
    for name, (shape, dtype) in wanted.items():
        value = getattr(timestep, name)
        if not isinstance(value, np.ndarray):
            raise ValueError(f"{name} at step {step} must be a NumPy array, got {type(value)}.")
        if value.dtype != dtype:
            raise ValueError(f"{name} at step {step} must be {dtype}, got {value.dtype}.")
        if value.shape != (num_envs, *shape):
            raise ValueError(
                f"{name} at step {step} must have shape {(num_envs, *shape)}, got {value.shape}."
            )


class _Rule(NamedTuple):
    """One rule: where it is violated (`[E, ...]` bool), and what is allowed, in words."""

    name: str
    wrong: np.ndarray
    allowed: str


def _check_values(
    timestep: TimeStep, after_last: np.ndarray, spec: EnvironmentSpec, step: int
) -> None:
    """Checks values; the error names the first environment that violates a rule."""
    kind, reward, discount = timestep.step_type, timestep.reward, timestep.discount
    first, seen = kind == FIRST, timestep.observation
    rules = [
        _Rule("step_type", ~np.isin(kind, (FIRST, MID, LAST)), "0, 1 or 2"),
        _Rule("step_type", after_last & ~first, "0 (FIRST) after a last step or a reset"),
        _Rule("step_type", first & ~after_last, "1 or 2: FIRST comes only after a last step"),
        _Rule("reward", ~np.isfinite(reward), "finite"),
        _Rule("reward", first & (reward != 0), "0 on a first step"),
        _Rule("discount", ~((discount >= 0) & (discount <= 1)), "0 to 1"),
        _Rule("discount", first & (discount != 1), "1 on a first step"),
        _Rule("discount", (kind == MID) & (discount == 0), "above 0, except on a last step"),
        _Rule("observation", ~np.isfinite(seen), "finite"),
    ]
    if isinstance(spec.observations, specs.BoundedArray):
        low, high = spec.observations.minimum, spec.observations.maximum
        rules += [
            _Rule("observation", seen < low, f"at least {low}"),
            _Rule("observation", seen > high, f"at most {high}"),
        ]
    for rule in rules:
        _enforce(rule, getattr(timestep, rule.name), step)


def _enforce(rule: _Rule, values: np.ndarray, step: int) -> None:
    if not rule.wrong.any():
        return
    where = tuple(np.argwhere(rule.wrong)[0].tolist())
    element = f"{rule.name}{list(where[1:])}" if where[1:] else rule.name
    raise ValueError(
        f"{element} of environment {where[0]} at step {step} must be {rule.allowed}, "
        f"got {values[where]}."
    )


def _check_kept(now: np.ndarray, then: np.ndarray, step: int) -> None:
    if not np.array_equal(now, then):
        raise ValueError(
            f"observation of step {step - 1} was overwritten by step {step}: return a new array "
            "at each step."
        )
