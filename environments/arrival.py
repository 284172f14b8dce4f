"""Shared by all kinds of environments: time steps in arrival form, seeds, checked actions.

`E` denotes the number of environments that are stepped together.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from dm_env import StepType, specs

from ..datatypes import ActionSpec, EnvironmentSpec, TimeStep
from .failures import RefusedError

Convert: TypeAlias = Callable[[Any], np.ndarray]  # from our actions `[E, ...]` to a library's

LARGEST = float(np.finfo(np.float32).max)
MASK = "action_mask"  # of legal actions: a key of observations, and of Gymnasium's `info`


def arrival(
    observation: Any, reward: Any, terminated: Any, truncated: Any, first: Any, xp: Any = np
) -> TimeStep:
    """Combines the results of an environment, or of E `[E, ...]`, to a time step in arrival form.

    Where `first`, the observation begins an episode, and the rest is ignored; where `terminated`,
    `truncated` is. `xp` is the namespace of the arrays, `numpy` or `jax.numpy`.
    """
    terminated = terminated & ~first
    later = xp.where(terminated | truncated, StepType.LAST, StepType.MID)
    return TimeStep(
        step_type=xp.where(first, StepType.FIRST, later).astype(np.int32),
        reward=xp.where(first, 0, reward).astype(np.float32),
        discount=xp.where(terminated, 0, 1).astype(np.float32),
        observation=observation,
    )


def check_numbers(seed: int, num_envs: int) -> None:
    """Refuses `num_envs` < 1 and `seed` < 0 by a ValueError."""
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}.")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}.")


def check_limit(limit: int | None) -> None:
    """Refuses, by a ValueError, a `max_episode_steps` that is neither None nor an integer >= 1."""
    if limit is not None and not (isinstance(limit, int | np.integer) and limit >= 1):
        raise ValueError(f"max_episode_steps must be an integer of at least 1, got {limit!r}.")


def environment_seeds(seed: int, num_envs: int) -> list[np.random.SeedSequence]:
    """One source of randomness for each environment: the first ones stay the same when E grows."""
    check_numbers(seed, num_envs)
    return [np.random.SeedSequence([seed, e]) for e in range(num_envs)]


def integer_seeds(seed: int, num_envs: int, nth: int = 0) -> np.ndarray:
    """The `nth` of each of `environment_seeds`, as integers `[E]` in [0, 2^31) for libraries."""
    words = [source.generate_state(nth + 1)[nth] for source in environment_seeds(seed, num_envs)]
    return np.array(words, np.int64) >> 1


def is_pool(vector: Any) -> bool:
    """Whether a vector is a pool of EnvPool, which takes its seed where it is made."""
    return hasattr(vector, "all_env_ids")


def checked_actions(actions: np.ndarray, spec: ActionSpec, num_envs: int) -> np.ndarray:
    """Actions in the type of the spec; continuous ones may lie out of bounds."""
    actions = np.asarray(actions)
    if actions.shape != (num_envs, *spec.shape):
        raise ValueError(f"actions must be {[num_envs, *spec.shape]}, got {[*actions.shape]}.")
    if isinstance(spec, specs.DiscreteArray):
        if not np.issubdtype(actions.dtype, np.integer):
            raise ValueError(f"actions must be integers, got {actions.dtype}.")
        allowed = f"0 to {spec.num_values - 1}"
        wrong = (actions < 0) | (actions >= spec.num_values)
    else:
        allowed, wrong = "a finite number", ~np.isfinite(actions)
    if wrong.any():
        e = int(np.argwhere(wrong)[0, 0])
        raise ValueError(f"the action of environment {e} must be {allowed}, got {actions[e]}.")
    return actions.astype(spec.dtype)


def fits(values: Any) -> bool:
    """Whether all of them are finite as float32."""
    return bool((np.abs(values) <= LARGEST).all())


def legal_actions(observation: np.ndarray, spec: EnvironmentSpec) -> np.ndarray:
    """The mask in observations `[E, ...]` with `masks_actions`: bool `[E, A]`."""
    rows = observation.reshape(len(observation), -1, observation.shape[-1])
    return rows[:, 0, -spec.actions.num_values :] != 0


def check_legal(
    observation: np.ndarray, over: np.ndarray, spec: EnvironmentSpec, step: int
) -> None:
    """Refuses a mask without legal actions, except after a termination (`over`)."""
    if spec.masks_actions:
        for e in np.flatnonzero(~over & ~legal_actions(observation, spec).any(axis=1)):
            raise RefusedError(f"the {MASK} of environment {e} at step {step} has no legal action.")


def check_finite(
    reward: np.ndarray, observation: np.ndarray, step: int, name: Callable[[int], str]
) -> None:
    """Refuses what is not finite as float32; `name` names a number of a flattened observation."""
    found = {"reward": reward[:, None], "observation": observation.reshape(len(reward), -1)}
    for kind, values in found.items():
        if values.dtype == np.uint8 or fits(values):
            continue
        e, index = (int(x) for x in np.argwhere(~(np.abs(values) <= LARGEST))[0])
        where = name(index) if kind == "observation" else ""
        raise RefusedError(
            f"the {kind}{where} of environment {e} at step {step} is {values[e, index]}; it must "
            "be finite as a float32."
        )


def enlarge(picture: np.ndarray, factor: int) -> np.ndarray:
    """Each pixel of `[height, width, 3]` becomes a square of factor x factor pixels."""
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)
