"""The columns of Reverb's tables, and the check that a server's tables have the same ones.

`T + 1` denotes the rows of a sequence, `B` a batch.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ...datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec
from ..packing import Packing, SequencePacking
from ..rows import row_spec
from .library import reverb, tensorflow

QUEUE = "rows"  # a queue of chunks of rows, where the learner keeps them
SEQUENCES = "sequences"  # the table of sequences otherwise
CHUNK_ROWS = 16  # of one environment, travelling together: about three updates at Reactor's ratio
_ANSWER_SECONDS = 1  # until a server describes its tables


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
        self._sequences = SequencePacking(row_spec(environment_spec, sequence), sequence)
        if self.queued:
            # In rounds, a chunk completes one sequence: no environment is further ahead.
            self.length = self.period = sequence.period if config.pace == "rounds" else CHUNK_ROWS
            self.table, self.before = QUEUE, 0
        else:
            self.length, self.period = sequence.length, sequence.period
            self.table, self.before = SEQUENCES, self._sequences.before

    def signature(self) -> tuple[tensorflow.TensorSpec, ...]:
        """Columns of an item, named with hashes of their layouts; a chunk's length is open."""
        if self.queued:
            shape, name = (None, self._sequences.row_bytes), f"rows_{self._sequences.layout}"
            origin = tensorflow.TensorSpec((3,), np.int64, "origin")
            return tensorflow.TensorSpec(shape, np.uint8, name), origin

        def column(name: str, packing: Packing, *axes: int) -> tensorflow.TensorSpec:
            shape = (*axes, packing.dtype.itemsize)
            return tensorflow.TensorSpec(shape, np.uint8, f"{name}_{packing.layout}")

        rows, *first = self._sequences.parts
        return (
            column("rows", rows, self.before + self.sequence.length),
            *(column("first", packing) for packing in first),
        )

    def pack(self, rows: Row, origins: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Packs rows `[n, ...]` into columns: uint8 `[n, bytes]`, and origins.

        Args:
          rows: all extras included.
          origins: `[n, 3]`; only the queue stores them.

        Raises:
          ValueError: rows are not as specified.
        """
        packed = self._sequences.pack(rows)
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
        rows, mask = self._sequences.unpack(columns)
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
        check_signature(self.table, served[self.table].signature, self.signature())


def check_signature(table: str, served: Any, wanted: Any) -> None:
    """Refuses a table of another layout.

    Args:
      table: its name.
      served: its signature.
      wanted: the signature of this run.

    Raises:
      ValueError: they differ; names both.
    """
    found, expected = _columns(served), _columns(wanted)
    if found != expected:
        raise ValueError(
            f"Reverb's table {table} has the columns {found}, but this run's rows make {expected}: "
            "continue with the config, the environment and the version that made the table."
        )


def _columns(signature: Any) -> str:
    """Names, hashes included, and shapes."""
    columns = [f"{spec.name} {spec.shape}" for spec in jax.tree.leaves(signature)]
    return ", ".join(columns) or "none"
