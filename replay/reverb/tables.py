"""The tables of a replay's Reverb server: their columns, and the check that a server has them.

`T + 1` denotes the rows of a sequence, `B` a batch.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ...datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec
from ..packing import SequencePacking
from ..rings import rows_per_environment
from .library import reverb, tensorflow

QUEUE = "rows"  # a queue of chunks of rows, where the learner keeps them
SEQUENCES = "sequences"  # the table of sequences otherwise
CHUNK_ROWS = 16  # of one environment, travelling together: about three updates at Reactor's ratio
_ANSWER_SECONDS = 1  # until a server describes its tables
_BATCHES_AHEAD = 3  # drawn, but not yet learned from: two in the reader, one in the learner
_OPTIONS = ("max_size", "max_times_sampled", "sampler_options", "remover_options")
_LIMITS = ("samples_per_insert", "min_diff", "max_diff", "min_size_to_sample")


def is_queued(config: ReplayConfig) -> bool:
    """Whether the learner keeps the rows: Reverb has neither contextual selection nor rounds."""
    return config.selector == "contextual" or config.pace == "rounds"


class Layout:
    """Maps rows to the columns of a table's items, and back.

    In a table of sequences the columns are the parts of a `SequencePacking`. In the queue each row
    is packed with all extras, since only the learner's store knows where sequences start, and a
    chunk has the origin of its first row: environment, writer, number of the row.

    Attributes:
      environment_spec: of one environment.
      sequence: length, period and extras of the sequences.
      config: of the replay.
      queued: see `is_queued`.
      table: its name.
      length: rows of an item, at most, without those before.
      period: rows between the starts of adjacent items.
      before: rows of an item before its sequence, for stacks of frames.
    """

    def __init__(
        self, environment_spec: EnvironmentSpec, sequence: SequenceSpec, config: ReplayConfig
    ):
        self.environment_spec, self.sequence, self.config = environment_spec, sequence, config
        self.queued = is_queued(config)
        self._packing = SequencePacking(environment_spec, sequence)
        if self.queued:
            # In rounds, a chunk completes one sequence: no environment is further ahead.
            self.length = self.period = sequence.period if config.pace == "rounds" else CHUNK_ROWS
            self.table, self.before = QUEUE, 0
        else:
            self.length, self.period = sequence.length, sequence.period
            self.table, self.before = SEQUENCES, self._packing.before

    def signature(self) -> tuple[tensorflow.TensorSpec, ...]:
        """Columns of an item, named with hashes of their layouts; a chunk's length is open."""
        if self.queued:
            shape, name = (None, self._packing.row_bytes), f"rows_{self._packing.layout}"
            origin = tensorflow.TensorSpec((3,), np.int64, "origin")
            return tensorflow.TensorSpec(shape, np.uint8, name), origin
        columns = zip(("rows", "first"), self._packing.shapes(1), self._packing.parts, strict=False)
        return tuple(
            tensorflow.TensorSpec(shape[1:], np.uint8, f"{name}_{part.layout}")
            for name, shape, part in columns
        )

    def pack(self, rows: Row, origins: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Packs rows `[n, ...]`, all extras included, into columns: uint8 `[n, bytes]`.

        The queue also has the column of origins `[n, 3]`.

        Raises:
          ValueError: rows are not as specified.
        """
        packed = self._packing.pack(rows)
        if not self.queued:
            return packed
        return [np.concatenate(packed, axis=-1), np.array(origins, np.int64)]

    def sample(self, columns: Sequence[np.ndarray], weights: np.ndarray) -> Sample:
        """The sample of a batch of sequences; its rows are views of the columns.

        Args:
          columns: uint8 `[B, before + T+1, bytes]`; with extras of the first row also
            `[B, bytes]`.
          weights: importance weights `[B]`.
        """
        rows, mask = self._packing.unpack(columns)
        return Sample(rows, weights.astype(np.float32), mask)

    def check_server(self, client: reverb.Client) -> None:
        """Checks that a server has the table, with this layout.

        Raises:
          ValueError: the table is missing, or has another layout.
          DeadlineExceededError: no server answers (Reverb's error).
        """
        served = client.server_info(timeout=_ANSWER_SECONDS)
        if self.table not in served:
            raise ValueError(
                f"The Reverb server at {client.server_address} has the tables {sorted(served)}, "
                f"but the config asks for {self.table}."
            )
        _check_signature(self.table, served[self.table].signature, self.signature())


def make_tables(layout: Layout, *, num_envs: int) -> list[reverb.Table]:
    """Makes the table of a replay server for the environments of all actors.

    Where the learner keeps the rows, it is a queue of chunks of them, so short that actors wait as
    soon as the learner takes no more. Otherwise it is a table of sequences whose rate limiter keeps
    the acting steps per update; it counts rows, and each episode has one row more than steps.

    Raises:
      ValueError: the capacity is too small for one sequence per environment.
    """
    sequence, config, signature = layout.sequence, layout.config, layout.signature()
    if layout.queued:
        return [reverb.Table.queue(QUEUE, num_envs, signature=signature)]
    sampler = reverb.selectors.Uniform()
    if config.selector == "proportional":
        sampler = reverb.selectors.Prioritized(config.priority_exponent)
    rows = rows_per_environment(sequence, config, num_envs)
    return [
        reverb.Table(
            name=SEQUENCES,
            sampler=sampler,
            remover=reverb.selectors.Fifo(),
            max_size=num_envs * rows // sequence.period,
            rate_limiter=_rate_limiter(sequence, config, num_envs),
            signature=signature,
        )
    ]


def check_tables(wanted: Mapping[str, Any], served: Mapping[str, Any]) -> None:
    """Refuses a checkpoint of other tables: its options would silently replace the config's.

    Args:
      wanted: `TableInfo` of each table, before it was given to a server.
      served: the same, as reported by the server.

    Raises:
      ValueError: names the first table, and its layout or option, that differ.
    """
    if set(wanted) != set(served):
        raise ValueError(
            f"The Reverb checkpoint holds the tables {sorted(served)}, but the config asks for "
            f"{sorted(wanted)}."
        )
    for name, info in wanted.items():
        _check_signature(name, served[name].signature, info.signature)
        found = _options(served[name])
        for option, value in _options(info).items():
            if found[option] != value:
                raise ValueError(
                    f"The Reverb checkpoint's table {name} has {option} {found[option]}, but the "
                    f"config asks for {value}: resume with the config of the original run."
                )


def _options(info: Any) -> dict[str, str]:
    """Options of a table, in one line each."""
    values = {name: getattr(info, name) for name in _OPTIONS}
    values |= {name: getattr(info.rate_limiter_info, name) for name in _LIMITS}
    return {name: " ".join(str(value).split()) for name, value in values.items()}


def _check_signature(table: str, served: Any, wanted: Any) -> None:
    """Refuses a table with another signature than that of this run; the error names both."""

    def columns(signature: Any) -> str:
        specs = jax.tree.leaves(signature)
        return ", ".join(f"{spec.name} {spec.shape}" for spec in specs) or "none"

    found, expected = columns(served), columns(wanted)
    if found != expected:
        raise ValueError(
            f"Reverb's table {table} has the columns {found}, but this run's rows make {expected}: "
            "continue with the config, the environment and the version that made the table."
        )


def _rate_limiter(sequence: SequenceSpec, config: ReplayConfig, num_envs: int) -> Any:
    """Limits samples per insert to what corresponds to the acting steps per update."""
    # The number of sequences in the table once the environments have made `min_rows` rows.
    rows = max(0, config.min_rows // num_envs - sequence.length)
    minimum = num_envs * (rows // sequence.period + 1)
    per_insert = config.batch_size * sequence.period / config.acting_steps_per_update
    # Tolerance: one insert of every environment, and the batches drawn ahead.
    room = max(1.0, per_insert) * num_envs + config.draw_size * _BATCHES_AHEAD
    return reverb.rate_limiters.SampleToInsertRatio(per_insert, minimum, float(math.ceil(room)))
