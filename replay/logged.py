"""A replay of recorded episodes."""

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from .local import LocalReplay
from .rows import row_spec


class Episode(NamedTuple):
    """A recorded episode, or a part of one, of T transitions; Minari's have the same names.

    Attributes:
      observations: `[T + 1, ...]`, the last one too: an array, or a tree of arrays.
      actions: `[T, ...]`.
      rewards: `[T]`.
      terminations: bool `[T]`, or one for the last transition: whether the task ended there. False
        for an episode that was cut off.
      extras: arrays `[T, ...]` that an agent stores with each action: `mu` of Reactor and ACER.
    """

    observations: Any
    actions: Any
    rewards: Any
    terminations: Any
    extras: Mapping[str, Any] = MappingProxyType({})


def episodes_of(
    observations: Any,
    actions: Any,
    rewards: Any,
    next_observations: Any,
    terminations: Any,
    truncations: Any = None,
    **extras: Any,
) -> list[Episode]:
    """Episodes of N transitions.

    A transition goes on where the one before ended if that was neither terminated nor truncated and
    both have the same observation there; otherwise another episode begins, and the one before was
    cut off or terminated.

    Args:
      observations: `[N, ...]`.
      actions: `[N, ...]`.
      rewards: `[N]`.
      next_observations: `[N, ...]`.
      terminations: bool `[N]`.
      truncations: bool `[N]`; None for none.
      **extras: `[N, ...]` each; see `Episode`.

    Raises:
      ValueError: the arrays have different lengths, or none.
    """
    arrays = {
        "observations": np.asarray(observations),
        "actions": np.asarray(actions),
        "rewards": np.asarray(rewards),
        "next_observations": np.asarray(next_observations),
        "terminations": np.asarray(terminations, bool),
        "truncations": np.zeros(len(rewards), bool) if truncations is None else truncations,
        **{name: np.asarray(value) for name, value in extras.items()},
    }
    lengths = {name: len(array) for name, array in arrays.items()}
    if len({*lengths.values()}) > 1 or not len(rewards):
        raise ValueError(f"the arrays of transitions must have one length above 0, got {lengths}.")
    seen, after = arrays["observations"], arrays["next_observations"]
    goes_on = (seen[1:] == after[:-1]).reshape(len(seen) - 1, -1).all(axis=1)
    goes_on &= ~(arrays["terminations"] | np.asarray(arrays["truncations"], bool))[:-1]
    ends = [*(np.flatnonzero(~goes_on) + 1).tolist(), len(seen)]
    return [
        Episode(
            np.concatenate([seen[begin:end], after[end - 1 : end]]),
            arrays["actions"][begin:end],
            arrays["rewards"][begin:end],
            bool(arrays["terminations"][end - 1]),
            {name: arrays[name][begin:end] for name in extras},
        )
        for begin, end in zip([0, *ends], ends, strict=False)
    ]


def rows_of(episode: Episode, number: int, spec: EnvironmentSpec) -> Row:
    """The rows `[T + 1, ...]` of an episode, without extras; its number is for errors.

    Raises:
      ValueError: an observation, an action or a shape is not as the environment's spec says.
    """
    name, count = f"episode {number}", len(episode.actions)
    seen, actions = np.asarray(episode.observations), np.asarray(episode.actions)
    rewards, ends = np.asarray(episode.rewards), np.ravel(episode.terminations).astype(bool)
    shapes = {
        "observations": (seen, (count + 1, *spec.observations.shape)),
        "actions": (actions, (count, *spec.actions.shape)),
        "rewards": (rewards, (count,)),
    }
    for key, (array, shape) in shapes.items():
        if array.shape != shape:
            raise ValueError(f"the {key} of {name} must be {[*shape]}, got {[*array.shape]}.")
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise ValueError(f"the {key} of {name} must be finite numbers.")
    if not count or len(ends) not in (1, count) or ends[:-1].any():
        raise ValueError(
            f"{name} must have at least one transition and terminate at its last one only, got "
            f"{count} transitions and terminations at {np.flatnonzero(ends).tolist()}."
        )
    low, high = actions.min(axis=0), actions.max(axis=0)
    if (low < spec.actions.minimum).any() or (high > spec.actions.maximum).any():
        raise ValueError(
            f"the actions of {name} must be from {spec.actions.minimum} to {spec.actions.maximum}, "
            f"got {low} to {high}."
        )
    if isinstance(spec.actions, specs.DiscreteArray) and actions.dtype.kind not in "iu":
        raise ValueError(f"the actions of {name} must be integers, got {actions.dtype}.")
    discounts = np.ones(count + 1, np.float32)
    discounts[-1] = not ends[-1]
    time = np.arange(count + 1)
    return Row(
        observation=seen.astype(spec.observations.dtype),
        reward=np.concatenate([[0], rewards]).astype(np.float32),
        discount=discounts,
        is_first=time == 0,
        is_last=time == count,
        action=np.concatenate([actions, np.zeros_like(actions[:1])]).astype(spec.actions.dtype),
        extras={},
    )


class LoggedReplay(LocalReplay):
    """A `LocalReplay` that is full from the beginning; one update is due at each `tick`."""

    def __init__(
        self,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        config: ReplayConfig,
        episodes: Iterable[Row],
        *,
        seed: int,
    ):
        """Takes in all rows, `[T + 1, ...]` of each episode.

        Of the config, selection and batch size count; the rest follows from the episodes.

        Raises:
          ValueError: the episodes are too short for one sequence, or larger than the memory.
        """
        episodes, period = list(episodes), sequence.period
        num_rows = sum(-(-len(rows.reward) // period) * period for rows in episodes)
        super().__init__(
            environment_spec,
            sequence,
            dataclasses.replace(
                config,
                capacity=num_rows + 2 * period + sequence.length + sequence.frame_stack,
                capacity_per_environment=False,
                min_rows=1,
                pace="steady",
                acting_steps_per_update=1.0,
                on_policy=False,
            ),
            num_envs=1,
            seed=seed,
        )
        wanted = row_spec(environment_spec, sequence)
        one = np.zeros(1, np.int64)
        for rows in episodes:
            rows = jax.tree.map(lambda x, like: np.asarray(x, like.dtype), rows, wanted)
            packed = self.packing.pack(rows)
            for t in range(len(rows.reward)):
                self.store.add_packed([part[t : t + 1] for part in packed], one)
        if not self.store.num_sequences:
            raise ValueError(
                f"the episodes have {num_rows} rows in all, too few for a sequence of "
                f"{sequence.length}."
            )
        self._observe(0)

    def tick(self) -> None:
        """One more update is due."""
        self._observe(1)
