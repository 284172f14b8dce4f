"""The actors' side of a replay in Reverb."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from ...datatypes import Row
from ..interface import never
from ..tree_selector import check_priorities
from .library import reverb
from .tables import Layout
from .waiting import Server

_ROWS_AHEAD = 32  # not yet confirmed: a confirmation takes milliseconds
_POLL_MS = 500  # between the checks of a wait for whether it must end
_CONNECT_MS = 1000  # Reverb rounds this one down to whole seconds
_CLOSE_SECONDS = 3.0


class ReverbWriter:
    """A `Writer` of the items that a `SequenceStore` would make of the same rows.

    For the queue these are chunks of rows. For the table they are sequences: starts are counted
    from the writer's first row, or from the episode's where sequences must not cross episodes;
    sequences that reach the end of their episode are padded with rows of zeros.

    Writing waits while the table's rate limiter blocks the newest items.
    """

    def __init__(
        self,
        address: str | reverb.Client,
        layout: Layout,
        *,
        environments: Sequence[int],
        stop: Callable[[], bool] = never,
        max_wait: float = 600.0,
    ):
        """Connects, and waits for the server if there is none yet.

        Args:
          address: "host:port" of the server, or a client.
          layout: of the server's tables.
          environments: their numbers among all of the program's, 0 ...
          stop: called twice a second while the writer waits.
          max_wait: seconds that rows may wait for the server to take them.

        Raises:
          ValueError: the server's table is missing, or has another layout.
          Stopped: `stop()` became true.
          WaitTimeout: no server answered for `max_wait` seconds.
        """
        server = Server(address, layout, stop=stop, max_wait=max_wait)
        self._layout, self._checked = layout, 1.0
        self._streams = server.connect(lambda: [_Stream(number, server) for number in environments])

    def write(self, rows: Row, new_priority: float = 1.0, which: np.ndarray | None = None) -> None:
        """Writes one row of each environment; waits while the table accepts no items.

        Raises:
          ValueError: the priority is NaN, infinite or negative, or rows do not match the spec or
            the number of environments.
          Stopped: `stop()` became true while the table accepted nothing.
          WaitTimeout: the table accepted nothing for `max_wait` seconds.
        """
        if new_priority != self._checked:  # also true for NaN
            check_priorities(np.array([new_priority]), 1)
            self._checked = new_priority
        streams = self._streams if which is None else [self._streams[i] for i in which]
        if len(rows.is_last) != len(streams):
            raise ValueError(
                f"rows must be of {len(streams)} environments, got {len(rows.is_last)}."
            )
        columns = self._layout.pack(rows, [stream.origin for stream in streams])
        for stream, first, last, *packed in zip(
            streams, rows.is_first, rows.is_last, *columns, strict=True
        ):
            stream.write(packed, new_priority, is_first=bool(first), is_last=bool(last))

    def close(self) -> None:
        """Sends what is left, for a few seconds at most, and disconnects."""
        streams, self._streams = self._streams, []
        deadline = time.monotonic() + _CLOSE_SECONDS
        for stream in streams:
            stream.close(deadline)


class _Stream:
    """The rows of one environment, and Reverb's writer for them."""

    def __init__(self, environment: int, server: Server):
        self._environment, self._id, self._server = environment, time.time_ns(), server
        layout = server.layout
        self._table, self._queued = layout.table, layout.queued
        self._length, self._period = layout.length, layout.period
        self._before, self._begins = layout.before, True
        self._pads = not (self._queued or layout.sequence.crosses_episodes)
        # Actors may be ahead of a table by the sequences that are incomplete at a time.
        ahead = 0 if self._queued else max(self._length, _ROWS_AHEAD)
        self._pending = -(-ahead // self._period)
        self._time = 0  # rows since starts are counted
        num_refs = self._before + self._length * (1 + self._pads)
        self._writer = server.client.trajectory_writer(
            num_refs, get_signature_timeout_ms=_CONNECT_MS
        )

    @property
    def origin(self) -> tuple[int, int, int]:
        """Of the next row: environment, writer, number of the row."""
        return self._environment, self._id, self._time

    def write(
        self, columns: list[np.ndarray], priority: float, *, is_first: bool, is_last: bool
    ) -> None:
        if self._pads and is_first:
            self._time = 0
        rows, *once = columns
        if self._begins:
            self._append_zeros(self._before, columns)
            self._begins = False
        starts = self._time % self._period == 0
        self._writer.append([rows, *(once if starts else [None] * len(once))])
        self._time += 1
        ages = self._complete(self._pads and is_last)
        missing = max((self._length - age for age in ages), default=0)
        self._append_zeros(missing, columns)
        for age in ages:
            self._create(age + missing, self._length, priority)
        if ages:
            self._server.retry(
                lambda: self._writer.flush(self._pending, _POLL_MS),
                (reverb.errors.DeadlineExceededError,),
                f"the replay to take the rows of environment {self._environment}",
            )

    def close(self, deadline: float) -> None:
        try:
            incomplete = self._time % self._length
            if self._queued and incomplete:
                self._create(incomplete, incomplete, 1.0)
            self._writer.flush(0, max(1, int(1000 * (deadline - time.monotonic()))))
        except reverb.errors.DeadlineExceededError:
            pass  # the learner takes no more rows
        finally:
            self._writer.close()

    def _append_zeros(self, num_rows: int, columns: list[np.ndarray]) -> None:
        rows, *once = columns
        for _ in range(num_rows):
            self._writer.append([np.zeros_like(rows), *([None] * len(once))])

    def _complete(self, ends: bool) -> list[int]:
        """Rows since the start of each item that the newest row completes; it may end them all."""
        starts = [self._time - self._length]
        if ends:  # a start needs one transition
            starts += range(max(0, self._time - self._length + 1), self._time - 1)
        return [self._time - start for start in starts if start >= 0 and start % self._period == 0]

    def _create(self, age: int, num_rows: int, priority: float) -> None:
        """Makes an item of rows that begin `age` rows ago."""
        rows, *once = self._writer.history
        begin = -age - self._before
        item = [rows[begin : num_rows - age or None], *(column[-age] for column in once)]
        self._writer.create_item(self._table, priority, item)
