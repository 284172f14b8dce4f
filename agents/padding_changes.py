"""Samples with other values where these have no meaning, for the conformance test of agents."""

import jax
import numpy as np
from dm_env import specs

from ..datatypes import ActionSpec, EnvironmentSpec, Sample, SequenceSpec


def with_other_padding(
    sample: Sample, spec: EnvironmentSpec, sequence: SequenceSpec, generator: np.random.Generator
) -> dict[str, Sample]:
    """The sample with other values where they have no meaning, by what was replaced.

    Args:
      sample: arrays of NumPy, `[B, T + 1, ...]`.
      spec: of the environment.
      sequence: of the agent.
      generator: draws the values.
    """
    rows, padding = sample.rows, ~sample.mask
    actions = _other_actions(rows.action, spec.actions, generator)

    def noise(old: np.ndarray) -> np.ndarray:
        if not np.issubdtype(old.dtype, np.floating):
            return old
        return _replaced(old, generator.uniform(0.1, 1.0, old.shape), padding)

    frames = random_observations(spec.observations, padding.size, generator)
    stacks = np.concatenate([frames] * sequence.frame_stack, axis=-1) if frames.ndim > 1 else frames
    of_rows = rows.extras.keys() - {*sequence.first_row_extras}
    others = rows._replace(
        observation=_replaced(rows.observation, stacks.reshape(rows.observation.shape), padding),
        reward=noise(rows.reward),
        discount=noise(rows.discount),
        action=_replaced(rows.action, actions, padding),
        extras={k: jax.tree.map(noise, x) if k in of_rows else x for k, x in rows.extras.items()},
    )
    ended = rows._replace(action=_replaced(rows.action, actions, rows.is_last & sample.mask))
    return {
        "the action of an episode's last row: mask the step after it": sample._replace(rows=ended),
        "rows behind Sample.mask, which are padding": sample._replace(rows=others),
    }


def random_observations(
    spec: specs.Array, number: int, generator: np.random.Generator
) -> np.ndarray:
    """Observations `[number, ...]` of a spec."""
    shape = (number, *spec.shape)
    if np.issubdtype(spec.dtype, np.integer):
        return generator.integers(256, size=shape).astype(spec.dtype)
    values = generator.normal(size=shape)
    if isinstance(spec, specs.BoundedArray):
        values = np.clip(values, spec.minimum, spec.maximum)
    return values.astype(spec.dtype)


def _other_actions(
    action: np.ndarray, spec: ActionSpec, generator: np.random.Generator
) -> np.ndarray:
    """Legal actions that are not those given."""
    if isinstance(spec, specs.DiscreteArray):
        return (action + 1) % spec.num_values
    low, high = (np.clip(bound, -1.0, 1.0) for bound in (spec.minimum, spec.maximum))
    return generator.uniform(low, high, action.shape)


def _replaced(old: np.ndarray, new: np.ndarray, where: np.ndarray) -> np.ndarray:
    """The new values `[B, T + 1, ...]` where a condition `[B, T + 1]` holds, else the old ones."""
    where = where.reshape(*where.shape, *(1,) * (old.ndim - where.ndim))
    return np.where(where, new, old).astype(old.dtype)
