"""One environment's rows on their way into Reverb."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from .reverb_library import reverb
from .reverb_tables import CHUNK_ROWS, NEWEST, QUEUE, Columns, sequence_tables, table_name
from .reverb_waiting import Wait, never
from .priorities import check_priorities

_PIECE_MS = 500  # how long a wait goes on before it looks whether it must end
_CONNECT_MS = 1000  # Reverb rounds this one down to whole seconds
_CLOSE_SECONDS = 3.0


class RowWriter:
    """Writes the items that a `SequenceStore` would have made of the same rows. A `Writer`.

    For the queue these are chunks of rows. For the table they are sequences: starts are counted
    from the writer's first row, or from the episode's where sequences must not cross episodes;
    sequences that meet the end of their episode are shorter, and padded by the learner.

    Writing waits while the table's rate limiter holds the newest items back.

    Attributes:
      new_priority: of new sequences; the learner knows the largest so far.
      waiting_seconds: how long `write` has been held up, in total.
    """

    def __init__(
        self,
        address: str | reverb.Client,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        replay: ReplayConfig,
        *,
        environment: int,
        stop: Callable[[], bool] = never,
        patience: float = 600.0,
    ):
        """Connects, and waits for the server if there is none yet.

        Args:
          address: "host:port" of the server, or a client.
          environment_spec: of the environment.
          sequence: how the agent wants sequences cut.
          replay: as given to `make_tables`.
          environment: its number among all environments of the program, 0 ...
          stop: looked at twice a second while the writer waits.
          patience: seconds that rows may wait for the server to take them.

        Raises:
          Stopped: `stop()` became true.
          ReplayTimeout: no server answered for `patience` seconds.
        """
        self.new_priority = 1.0
        self.waiting_seconds = 0.0
        self._client = reverb.Client(address) if isinstance(address, str) else address
        self._table = table_name(replay)
        self._tables = (QUEUE,) if self._table == QUEUE else sequence_tables(replay)
        self._sequence, self._stop, self._patience = sequence, stop, patience
        self._columns = Columns(environment_spec, sequence, replay)
        self._environment, self._id = environment, time.time_ns()
        self._time = 0  # rows since the sequences' starts are counted
        self._chunk = 0  # rows in the queue's next item
        self._writer = self._connect(CHUNK_ROWS if self._table == QUEUE else sequence.length)

    def write(self, row: Row) -> None:
        """Takes one unbatched row of NumPy arrays, all extras included.

        Raises:
          ValueError: `new_priority` is NaN, infinite or negative, or the row does not fit the spec.
          Stopped: `stop()` became true while the table took nothing.
          ReplayTimeout: the table took nothing for as long as the patience lasted.
        """
        if self._table == QUEUE:
            self._write_to_queue(row)
        else:
            self._write_sequences(row)

    def close(self) -> None:
        """Sends what is left, for a few seconds at most, and disconnects."""
        if self._writer is None:
            return
        try:
            if self._chunk:
                self._create(self._chunk)
            self._writer.flush(0, int(_CLOSE_SECONDS * 1000))
        except reverb.errors.DeadlineExceededError:
            pass  # the learner takes nothing any more
        finally:
            self._writer.close()
            self._writer = None

    def _write_to_queue(self, row: Row) -> None:
        self._writer.append(
            self._columns.step(row, origin=(self._environment, self._id, self._time))
        )
        self._time += 1
        self._chunk += 1
        if self._chunk == CHUNK_ROWS:
            self._create(self._chunk)
            self._chunk = 0
            self._flush(0)

    def _write_sequences(self, row: Row) -> None:
        length, period = self._sequence.length, self._sequence.period
        crosses = self._sequence.crosses_episodes
        if row.is_first and not crosses:
            self._time = 0
        self._writer.append(self._columns.step(row, starts=self._time % period == 0))
        self._time += 1
        starts = [self._time - length]
        if row.is_last and not crosses:
            # A start needs one transition.
            starts += range(max(0, self._time - length + 1), self._time - 1)
        complete = [start for start in starts if start >= 0 and start % period == 0]
        for start in complete:
            self._create(self._time - start)
        if NEWEST not in self._tables:
            self._flush(length // period + 1)
        elif complete:  # on-policy updates want no more than what the queue holds
            self._flush(0)

    def _create(self, num_rows: int) -> None:
        """Makes an item of the newest rows, in each table."""
        priority = float(check_priorities(np.array([self.new_priority]), 1)[0])
        trajectory = self._columns.trajectory(self._writer.history, num_rows)
        for table in self._tables:
            self._writer.create_item(table, priority, trajectory)

    def _flush(self, num_pending: int) -> None:
        """Waits until at most `num_pending` items have not been inserted."""
        started = time.monotonic()
        wait = self._wait(f"the replay to take the rows of environment {self._environment}")
        while True:
            try:
                self._writer.flush(num_pending, _PIECE_MS)
                break
            except reverb.errors.DeadlineExceededError:
                wait.check()
        self.waiting_seconds += time.monotonic() - started

    def _connect(self, num_refs: int) -> Any:
        wait = self._wait("the replay's server")
        while True:
            try:
                return self._client.trajectory_writer(
                    num_refs, get_signature_timeout_ms=_CONNECT_MS
                )
            except (reverb.errors.ReverbError, RuntimeError):
                wait.check()
                time.sleep(_PIECE_MS / 1000)

    def _wait(self, what: str) -> Wait:
        return Wait(what, self._client, self._tables[-1], stop=self._stop, patience=self._patience)
