"""Reverb's tables, and how rows and sequences lie in their columns.

`T + 1` denotes the rows of a sequence.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from .schedule import mean_acting_steps_per_update
from .reverb_library import reverb, tensorflow
from .store import row_spec

QUEUE = "rows"
SEQUENCES = "sequences"
NEWEST = "newest"  # a queue of sequences for on-policy updates, beside the table
CHUNK_ROWS = 16  # of one environment, travelling together: about three updates at Reactor's ratio
_BATCHES_AHEAD = 4  # on their way between the table and an update, in `TableReplay`
_ORIGIN = jax.ShapeDtypeStruct((3,), np.int64)  # environment, writer, number of its first row


def table_name(replay: ReplayConfig) -> str:
    """Where rows go: to `rows` (a queue) for contextual selection, or to `sequences`."""
    return QUEUE if replay.selector == "contextual" else SEQUENCES


def sequence_tables(replay: ReplayConfig) -> tuple[str, ...]:
    """Where each sequence goes, if sequences are written and not rows."""
    return (SEQUENCES, NEWEST) if replay.on_policy else (SEQUENCES,)


class Columns:
    """Which column of a table holds what; columns are numbered.

    First come the row's leaves, over time. Then, with a row's worth of each item: the extras of a
    sequence's first row in the table of sequences, and the origin of the rows in the queue. In the
    queue those extras go with every row, since only the learner's store knows its starts: they
    cost `period` times what they cost in the table, for as long as the rows travel.
    """

    def __init__(
        self, environment_spec: EnvironmentSpec, sequence: SequenceSpec, replay: ReplayConfig
    ):
        """Args: what the agent and the environment say."""
        self._queued = table_name(replay) == QUEUE
        self._first_names = () if self._queued else sequence.first_row_extras
        row = row_spec(environment_spec, sequence)
        self._row, self._first = self._split(row)
        self._single = _ORIGIN if self._queued else self._first
        self._length = sequence.length if not self._queued and sequence.crosses_episodes else None
        self.num_rows = len(jax.tree.leaves(self._row))

    def signature(self) -> tuple[tensorflow.TensorSpec, ...]:
        """What an item looks like; the length of those that episodes may cut short is open."""

        def spec(path: Any, struct: Any, time: tuple[int | None, ...]) -> tensorflow.TensorSpec:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            # TensorFlow's names begin with a letter; the origin has no path.
            return tensorflow.TensorSpec((*time, *struct.shape), struct.dtype, name or "origin")

        over_time = jax.tree_util.tree_leaves_with_path(self._row)
        single = jax.tree_util.tree_leaves_with_path(self._single)
        return (
            *(spec(path, struct, (self._length,)) for path, struct in over_time),
            *(spec(path, struct, ()) for path, struct in single),
        )

    def step(self, row: Row, *, origin: Sequence[int] = (), starts: bool = True) -> list[Any]:
        """One row as Reverb's step, with None where a column has nothing.

        Args:
          row: unbatched.
          origin: in the queue: environment, writer, number of the row.
          starts: whether a sequence starts here, in the table of sequences.
        """
        rest, first = self._split(row)
        if self._queued:
            return [*jax.tree.leaves(rest), np.asarray(origin, np.int64)]
        values = jax.tree.leaves(first)
        return [*jax.tree.leaves(rest), *(values if starts else [None] * len(values))]

    def trajectory(self, history: Sequence[Any], newest: int) -> list[Any]:
        """The newest steps of a writer's history, that many, as an item."""
        over_time = [column[-newest:] for column in history[: self.num_rows]]
        return [*over_time, *(column[-newest] for column in history[self.num_rows :])]

    def rows(self, columns: Sequence[np.ndarray]) -> Row:
        """An item's rows, `[n, ...]`; extras of the first row alone are without the axis."""
        rest: Row = jax.tree.unflatten(jax.tree.structure(self._row), columns[: self.num_rows])
        first = jax.tree.unflatten(
            jax.tree.structure(self._first), () if self._queued else columns[self.num_rows :]
        )
        return rest._replace(extras={**rest.extras, **first})

    def _split(self, row: Row) -> tuple[Row, dict[str, Any]]:
        first = {name: row.extras[name] for name in self._first_names}
        rest = {name: value for name, value in row.extras.items() if name not in first}
        return row._replace(extras=rest), first


def make_tables(
    environment_spec: EnvironmentSpec,
    sequence: SequenceSpec,
    replay: ReplayConfig,
    *,
    num_environments: int,
) -> list[reverb.Table]:
    """The tables of a replay node: one, or two for on-policy updates.

    For contextual selection it is a queue of chunks of rows, so short that actors wait as soon as
    the learner takes no more. Otherwise it is a table of sequences with a rate limiter that keeps
    to the acting steps per update; it counts rows, of which each episode has one more than steps.
    With on-policy updates, a queue that takes one sequence of each environment keeps the pace.

    Args:
      environment_spec: of one environment.
      sequence: how the agent wants sequences cut.
      replay: capacity, selection, batch size, ratio.
      num_environments: environments of all actors together.

    Raises:
      ValueError: the capacity is too small for one sequence per environment.
    """
    signature = Columns(environment_spec, sequence, replay).signature()
    if table_name(replay) == QUEUE:
        return [reverb.Table.queue(QUEUE, num_environments, signature=signature)]
    if replay.capacity // num_environments < sequence.length:
        raise ValueError(
            f"A replay capacity of {replay.capacity} rows over {num_environments} environments "
            f"keeps {replay.capacity // num_environments} rows each, but a sequence has "
            f"{sequence.length}."
        )
    table = reverb.Table(
        name=SEQUENCES,
        sampler=_sampler(replay),
        remover=reverb.selectors.Fifo(),
        max_size=max(1, replay.capacity // sequence.period),
        rate_limiter=_rate_limiter(sequence, replay, num_environments),
        signature=signature,
    )
    if not replay.on_policy:
        return [table]
    return [table, reverb.Table.queue(NEWEST, num_environments, signature=signature)]


def _sampler(replay: ReplayConfig) -> Any:
    if replay.selector == "uniform":
        return reverb.selectors.Uniform()
    return reverb.selectors.Prioritized(replay.priority_exponent)


def _rate_limiter(sequence: SequenceSpec, replay: ReplayConfig, num_environments: int) -> Any:
    """Keeps samples per insert near what the acting steps per update amount to."""
    if replay.on_policy:
        return reverb.rate_limiters.MinSize(1)
    steps = mean_acting_steps_per_update(replay, period=sequence.period, num_envs=num_environments)
    per_insert = replay.batch_size * sequence.period / steps
    # Sequences come into being where rows do, so `min_rows` rows are this many of them.
    rows = max(0, replay.min_rows // num_environments - sequence.length)
    minimum = num_environments * (rows // sequence.period + 1)
    # Room for what is on its way: an insert of every environment, and the batches drawn ahead.
    room = max(1.0, per_insert) * num_environments + replay.draw_size * _BATCHES_AHEAD
    return reverb.rate_limiters.SampleToInsertRatio(per_insert, minimum, float(math.ceil(room)))
