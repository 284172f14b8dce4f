"""A replay of recorded episodes."""

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from .local import LocalReplay
from .rows import check_stored_as, row_spec

_ROUNDING = 1e-5  # of the range of an action, by which it may lie outside


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

    A transition continues the one before it if that was neither terminated nor truncated and
    both have the same observation there; otherwise another episode begins, and the one before was
    cut off or terminated.

    Observations `[N, ...]` are an array, a dictionary or a tuple of arrays, or N observations;
    terminations and truncations bool `[N]` or one for all; the rest `[N, ...]`. ValueError if the
    arrays have different lengths, or none, or an end is neither true nor false.
    """
    columns = {"actions": array_of(actions), "rewards": array_of(rewards)}
    columns |= {name: array_of(value) for name, value in extras.items()}
    count = len(np.atleast_1d(columns["rewards"]))
    cut_off = False if truncations is None else truncations
    for name, given in (("terminations", terminations), ("truncations", cut_off)):
        flags = _flags(given, f"{name} of transitions")
        columns[name] = flags.ravel() if flags.ndim else np.full(count, flags)
    seen, after = (_batch(trees, count) for trees in (observations, next_observations))
    named = {"observations": seen, "next_observations": after, **columns}
    lengths = {
        name: {len(np.atleast_1d(leaf)) for leaf in jax.tree.leaves(tree)}
        for name, tree in named.items()
    }
    if any(found != {count} for found in lengths.values()) or not count:
        shown = {name: min(found, default=0) for name, found in lengths.items()}
        raise ValueError(f"the arrays of transitions must have equal lengths above 0, got {shown}.")
    structures: list[Any] = [jax.tree.structure(tree) for tree in (seen, after)]
    if structures[0] != structures[1]:
        raise ValueError("observations and next_observations must have the same entries.")
    goes_on = ~(columns["terminations"] | columns["truncations"])[:-1]
    for here, there in zip(jax.tree.leaves(seen), jax.tree.leaves(after), strict=True):
        goes_on &= (here[1:] == there[:-1]).reshape(count - 1, -1).all(axis=1)
    bounds = [0, *(np.flatnonzero(~goes_on) + 1).tolist(), count]
    both = jax.tree.map(lambda x, y: np.concatenate([x, y]), seen, after)
    return [
        Episode(
            jax.tree.map(operator.itemgetter([*range(begin, end), count + end - 1]), both),
            columns["actions"][begin:end],
            columns["rewards"][begin:end],
            bool(columns["terminations"][end - 1]),
            {name: columns[name][begin:end] for name in extras},
        )
        for begin, end in itertools.pairwise(bounds)
    ]


def array_of(values: Any) -> np.ndarray:
    """An array; one of objects for lists of several lengths."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.array([*values, None], object)[:-1]


def numbers_of(values: Any, shape: tuple[int, ...], dtype: Any, what: str) -> np.ndarray:
    """An array of a shape with finite numbers of a dtype; else ValueError."""
    array = array_of(values)
    if array.shape != shape:
        raise ValueError(f"the {what} must be {[*shape]}, got {[*array.shape]}.")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"the {what} must be finite numbers, got {array.dtype}.")
    with np.errstate(over="ignore", invalid="ignore"):
        found = array.astype(dtype)
    wrong = ~np.isfinite(found) if found.dtype.kind == "f" else found != array
    if wrong.any():
        raise ValueError(
            f"the {what} must be finite numbers as {found.dtype}, got {array[wrong][0]}."
        )
    return found


def _flags(values: Any, what: str) -> np.ndarray:
    array = array_of(values)
    if array.size and (array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all()):
        raise ValueError(f"the {what} must be True or False, got {values!r:.60}.")
    return array.astype(bool)


def _batch(values: Any, count: int) -> Any:
    """A tree of arrays `[N, ...]`, given as one or as a sequence of N trees."""
    if isinstance(values, Mapping):
        return {key: _batch(part, count) for key, part in values.items()}
    array = array_of(values)
    if isinstance(values, tuple) and (len(values) != count or array.dtype.kind == "O"):
        parts = [_batch(part, count) for part in values]
        if all(len(np.atleast_1d(leaf)) == count for leaf in jax.tree.leaves(parts)):
            return tuple(parts)
    if array.dtype.kind == "O" and array.ndim and all(isinstance(x, Mapping) for x in array):
        return {key: _batch([tree[key] for tree in array], count) for key in array[0]}
    if array.dtype.kind == "O" and array.ndim and all(isinstance(x, tuple) for x in array):
        return tuple(_batch([*column], count) for column in zip(*array, strict=True))
    return array


def rows_of(episode: Episode, number: int, spec: EnvironmentSpec) -> Row:
    """The rows `[T + 1, ...]` of an episode, without extras; ValueError if they are not as `spec`.

    The number is for errors.
    """
    name, given = f"episode {number}", array_of(episode.actions)
    ends = np.ravel(_flags(episode.terminations, f"terminations of {name}"))
    count = len(np.atleast_1d(given))
    if not count or len(ends) not in (1, count) or ends[:-1].any():
        raise ValueError(
            f"{name} must have at least one transition and terminate only at its last one, got "
            f"{count} transitions and terminations at {np.flatnonzero(ends).tolist()}."
        )
    if isinstance(spec.actions, specs.DiscreteArray) and given.dtype.kind not in "iu":
        raise ValueError(f"the actions of {name} must be integers, got {given.dtype}.")
    seen, taken = spec.observations, spec.actions
    shape = count + 1, *seen.shape
    observations = numbers_of(episode.observations, shape, seen.dtype, f"observations of {name}")
    actions = numbers_of(given, (count, *taken.shape), taken.dtype, f"actions of {name}")
    rewards = numbers_of(episode.rewards, (count,), np.float32, f"rewards of {name}")
    low, high = given.min(axis=0), given.max(axis=0)
    slack = _ROUNDING * (taken.maximum - taken.minimum)
    if (low < taken.minimum - slack).any() or (high > taken.maximum + slack).any():
        raise ValueError(
            f"the actions of {name} must be from {taken.minimum} to {taken.maximum}, got {low} to "
            f"{high}: clip them if the environment did."
        )
    discounts = np.ones(count + 1, np.float32)
    discounts[-1] = not ends[-1]
    time, actions = np.arange(count + 1), np.clip(actions, taken.minimum, taken.maximum)
    return Row(
        observation=observations,
        reward=np.concatenate([[0], rewards]).astype(np.float32),
        discount=discounts,
        is_first=time == 0,
        is_last=time == count,
        action=np.concatenate([actions, np.zeros_like(actions[:1])]),
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
        """Stores the rows `[T + 1, ...]` of each episode; of the config, selection and batch count.

        ValueError if the episodes are too short for one sequence, or larger than the memory.
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
                self._append([part[t : t + 1] for part in packed], one)
        if not self.num_sequences:
            raise ValueError(
                f"the episodes have {sum(len(rows.reward) for rows in episodes)} rows in all, too "
                f"few for a sequence of {sequence.length}."
            )
        self._observe(0)

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """See `LocalReplay`; ValueError if the state has rows of other episodes."""
        if "heads" in state:
            check_stored_as(state, self._sequence, self._config)
            own, found = ({**x["rows"], **x.get("first", {})} for x in (self.state(), state))
            differing = [name for name in own if not _are_alike(own[name], found[name])]
            if differing:
                raise ValueError(
                    "data must be the episodes of the original run, but they differ in "
                    f"{', '.join(differing)} from those in the snapshot."
                )
        super().restore(state, counters)

    def tick(self) -> None:
        """One more update is due."""
        self._observe(1)


def _are_alike(values: np.ndarray, others: np.ndarray) -> bool:
    """Whether arrays are equal, but for the rounding of sums that each machine computes."""
    if values.dtype.kind != "f" or values.shape != others.shape:
        return np.array_equal(values, others)
    return bool((np.abs(values - others) <= 1e-6 * np.abs(values).max(initial=0)).all())
