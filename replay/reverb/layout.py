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

QUEUE = "rows"  # a queue of chunks of rows, for contextual selection
SEQUENCES = "sequences"  # the table of sequences otherwise
NEWEST = "newest"  # a queue of sequences that counts rounds, besides that table
_ANSWER_SECONDS = 1  # until a server describes its tables
_ORIGIN = jax.ShapeDtypeStruct((3,), np.int64)  # environment, writer, number of the row


class Layout:
    """Maps rows to the columns of a table's items, and back.

    In a table of sequences the columns are the parts of a `SequencePacking`. In the queue each row
    is packed with all extras, since only the learner's store knows where sequences start, and with
    its origin.

    Attributes:
      environment_spec: of one environment.
      sequence: length, period and extras of the sequences.
      config: of the replay.
      tables: names of the tables that every item goes to.
      queued: whether they are the queue of chunks of rows.
      before: rows of an item before its sequence, for stacks of frames.
    """

    def __init__(
        self, environment_spec: EnvironmentSpec, sequence: SequenceSpec, config: ReplayConfig
    ):
        self.environment_spec, self.sequence, self.config = environment_spec, sequence, config
        self.queued = config.selector == "contextual"
        self.tables: tuple[str, ...] = (QUEUE,)
        if not self.queued:
            self.tables = (SEQUENCES, NEWEST) if config.pace == "rounds" else (SEQUENCES,)
        row = row_spec(environment_spec, sequence)
        self._sequences = SequencePacking(row, sequence)
        self._chunks = Packing((row, _ORIGIN))
        self.before = 0 if self.queued else self._sequences.before

    def signature(self) -> tuple[tensorflow.TensorSpec, ...]:
        """Columns of an item, named with hashes of their layouts; a chunk's length is open."""

        def column(name: str, packing: Packing, *axes: int | None) -> tensorflow.TensorSpec:
            shape = (*axes, packing.dtype.itemsize)
            return tensorflow.TensorSpec(shape, np.uint8, f"{name}_{packing.layout}")

        if self.queued:
            return (column("rows", self._chunks, None),)
        rows, *first = self._sequences.parts
        return (
            column("rows", rows, self.before + self.sequence.length),
            *(column("first", packing) for packing in first),
        )

    def pack(self, rows: Row, origins: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Packs rows `[n, ...]` into columns, uint8 `[n, bytes]` each.

        Args:
          rows: all extras included.
          origins: `[n, 3]`; only the queue stores them.

        Raises:
          ValueError: rows are not as specified.
        """
        if not self.queued:
            return self._sequences.pack(rows)
        return [self._chunks.pack((rows, np.array(origins, np.int64)))]

    def chunk(self, columns: Sequence[np.ndarray]) -> tuple[list[int], Row]:
        """Origin of the first row of an item of the queue, and its rows `[n, ...]`."""
        rows, origins = self._chunks.unpack(columns[0])
        return origins[0].tolist(), rows

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
        """Checks that a server has the tables, with this layout.

        Raises:
          ValueError: a table is missing, or has another layout.
          DeadlineExceededError: no server answers (Reverb's error).
        """
        served = client.server_info(timeout=_ANSWER_SECONDS)
        for table in self.tables:
            if table not in served:
                raise ValueError(
                    f"The Reverb server at {client.server_address} has the tables "
                    f"{sorted(served)}, but the config asks for {table}."
                )
            check_signature(table, served[table].signature, self.signature())


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
