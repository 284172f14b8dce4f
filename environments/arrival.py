"""Shared by all kinds of environments: time steps in arrival form, seeds, checks of actions.

`E` denotes the number of environments that are stepped together.
"""

import dm_env
import numpy as np
from dm_env import specs

from ..datatypes import ActionSpec, TimeStep


def arrival(
    observation: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    first: np.ndarray,
) -> TimeStep:
    """Combines the results of E environments into a time step in arrival form.

    Args:
      observation: `[E, ...]`.
      reward: `[E]`, any real type; ignored where `first`.
      terminated: `[E]` bool; ignored where `first`.
      truncated: `[E]` bool; ignored where `first`. Where both are true, it is a termination.
      first: `[E]` bool: these observations begin an episode.

    Returns:
      A time step whose reward is 0 and discount 1 where `first`, and whose discount is 0 on a
      termination.
    """
    terminated = terminated & ~first
    last = terminated | (truncated & ~first)
    step_type = np.full(first.shape, dm_env.StepType.MID, np.int32)
    step_type[first] = dm_env.StepType.FIRST
    step_type[last] = dm_env.StepType.LAST
    return TimeStep(
        step_type=step_type,
        reward=np.where(first, 0, reward).astype(np.float32),
        discount=np.where(terminated, 0, 1).astype(np.float32),
        observation=observation,
    )


def environment_seeds(seed: int, num_envs: int) -> list[np.random.SeedSequence]:
    """One source of randomness for each environment, independent of the number of environments.

    Args:
      seed: >= 0.
      num_envs: E >= 1.

    Returns:
      E seed sequences: the first ones stay the same when E grows.

    Raises:
      ValueError: `seed` or `num_envs` is out of its range.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}.")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}.")
    return [np.random.SeedSequence([seed, e]) for e in range(num_envs)]


def integer_seeds(seed: int, num_envs: int) -> np.ndarray:
    """`environment_seeds` as integers `[E]` in [0, 2^31), for libraries that take those."""
    words = [source.generate_state(1)[0] for source in environment_seeds(seed, num_envs)]
    return np.array(words, np.int64) >> 1


def checked_actions(actions: np.ndarray, spec: ActionSpec, num_envs: int) -> np.ndarray:
    """Checks actions and converts them to the type of the spec.

    Continuous actions may lie out of bounds (clip them); discrete ones may not.

    Args:
      actions: `[E, ...]`: integers for a `DiscreteArray`, finite numbers otherwise.
      spec: the action spec of one environment.
      num_envs: E.

    Returns:
      `[E, ...]` int32 or float32.

    Raises:
      ValueError: names what is wrong, and the first environment with a wrong value.
    """
    actions = np.asarray(actions)
    if actions.shape != (num_envs, *spec.shape):
        raise ValueError(f"actions must be {[num_envs, *spec.shape]}, got {[*actions.shape]}.")
    if not isinstance(spec, specs.DiscreteArray):
        _refuse_where(~np.isfinite(actions), actions, "a finite number")
        return actions.astype(spec.dtype)
    if not np.issubdtype(actions.dtype, np.integer):
        raise ValueError(f"actions must be integers, got {actions.dtype}.")
    allowed = f"0 to {spec.num_values - 1}"
    _refuse_where((actions < 0) | (actions >= spec.num_values), actions, allowed)
    return actions.astype(spec.dtype)


def _refuse_where(wrong: np.ndarray, actions: np.ndarray, allowed: str) -> None:
    if not wrong.any():
        return
    environment = int(np.argwhere(wrong)[0, 0])
    raise ValueError(
        f"the action of environment {environment} must be {allowed}, got {actions[environment]}."
    )
