"""The actors' side of a replay in Reverb."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ...datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from ..priorities import check_priorities
from ..waiting import never
from .columns import NEWEST, QUEUE, Columns
from .library import reverb
from .waiting import retry

CHUNK_ROWS = 16  # of one environment, travelling together: about three updates at Reactor's ratio
_POLL_MS = 500  # between the checks of a wait for whether it must end
_CONNECT_MS = 1000  # Reverb rounds this one down to whole seconds
_CLOSE_SECONDS = 3.0


class ReverbWriter:
    """A `Writer` of the items that a `SequenceStore` would make of the same rows.

    For the queue these are chunks of rows. For the table they are sequences: starts are counted
    from the writer's first row, or from the episode's where sequences must not cross episodes;
    sequences that reach the end of their episode are shorter, and padded by the learner.

    Writing waits while the table's rate limiter blocks the newest items.
    """

    def __init__(
        self,
        address: str | reverb.Client,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        config: ReplayConfig,
        *,
        environments: Sequence[int],
        stop: Callable[[], bool] = never,
        max_wait: float = 600.0,
    ):
        """Connects, and waits for the server if there is none yet.

        Args:
          address: "host:port" of the server, or a client.
          environment_spec: of one environment.
          sequence: as given to `make_tables`.
          config: as given to `make_tables`.
          environments: numbers of the environments among all of the program, 0 ...
          stop: called twice a second while the writer waits.
          max_wait: seconds that rows may wait for the server to take them.

        Raises:
          Stopped: `stop()` became true.
          WaitTimeout: no server answered for `max_wait` seconds.
        """
        client = reverb.Client(address) if isinstance(address, str) else address
        columns = Columns(environment_spec, sequence, config)
        wait = functools.partial(
            retry, client=client, table=columns.tables[-1], stop=stop, max_wait=max_wait
        )
        self._streams = [_Stream(number, client, columns, wait) for number in environments]

    def write(self, rows: Row, new_priority: float = 1.0) -> None:
        """Writes one row of each environment; waits while the table accepts no items.

        Raises:
          ValueError: the priority is NaN, infinite or negative, or rows do not match the spec or
            the number of environments.
          Stopped: `stop()` became true while the table accepted nothing.
          WaitTimeout: the table accepted nothing for `max_wait` seconds.
        """
        check_priorities(np.array([new_priority]), 1)
        if len(rows.is_last) != len(self._streams):
            raise ValueError(
                f"rows must be of {len(self._streams)} environments, got {len(rows.is_last)}."
            )
        for index, stream in enumerate(self._streams):
            stream.write(jax.tree.map(lambda x, index=index: x[index], rows), new_priority)

    def close(self) -> None:
        """Sends what is left, for a few seconds at most, and disconnects."""
        streams, self._streams = self._streams, []
        deadline = time.monotonic() + _CLOSE_SECONDS
        for stream in streams:
            stream.close(deadline)


class _Stream:
    """The rows of one environment, and Reverb's writer for them."""

    def __init__(
        self, environment: int, client: reverb.Client, columns: Columns, wait: Callable[..., Any]
    ):
        self._environment, self._id = environment, time.time_ns()
        self._columns, self._sequence, self._wait = columns, columns.sequence, wait
        self._queued = columns.tables == (QUEUE,)
        # Actors may be ahead of a table by the sequences that are incomplete at a time.
        queue = columns.tables[-1] in (QUEUE, NEWEST)
        self._pending = 0 if queue else self._sequence.length // self._sequence.period + 1
        self._time = 0  # rows since starts are counted
        num_refs = CHUNK_ROWS if self._queued else columns.sequence.length
        self._writer = wait(
            lambda: client.trajectory_writer(num_refs, get_signature_timeout_ms=_CONNECT_MS),
            (reverb.errors.ReverbError, RuntimeError),
            what="the replay's server",
            pause=_POLL_MS / 1000,
        )

    def write(self, row: Row, priority: float) -> None:
        if row.is_first and not (self._queued or self._sequence.crosses_episodes):
            self._time = 0
        starts = self._time % self._sequence.period == 0
        origin = (self._environment, self._id, self._time)
        self._writer.append(self._columns.step(row, origin=origin, starts=starts))
        self._time += 1
        complete = self._complete(bool(row.is_last))
        for num_rows in complete:
            self._create(num_rows, priority)
        if complete or self._pending:
            self._wait(
                lambda: self._writer.flush(self._pending, _POLL_MS),
                (reverb.errors.DeadlineExceededError,),
                what=f"the replay to take the rows of environment {self._environment}",
            )

    def close(self, deadline: float) -> None:
        try:
            if self._queued and self._time % CHUNK_ROWS:
                self._create(self._time % CHUNK_ROWS, 1.0)
            self._writer.flush(0, max(1, int(1000 * (deadline - time.monotonic()))))
        except reverb.errors.DeadlineExceededError:
            pass  # the learner takes no more rows
        finally:
            self._writer.close()

    def _complete(self, is_last: bool) -> list[int]:
        """Rows of each item that the newest row completes."""
        if self._queued:
            return [] if self._time % CHUNK_ROWS else [CHUNK_ROWS]
        length, period = self._sequence.length, self._sequence.period
        starts = [self._time - length]
        if is_last and not self._sequence.crosses_episodes:
            # A start needs one transition.
            starts += range(max(0, self._time - length + 1), self._time - 1)
        return [self._time - start for start in starts if start >= 0 and start % period == 0]

    def _create(self, num_rows: int, priority: float) -> None:
        """Makes an item of the newest rows, in each table."""
        trajectory = self._columns.trajectory(self._writer.history, num_rows)
        for table in self._columns.tables:
            self._writer.create_item(table, priority, trajectory)
