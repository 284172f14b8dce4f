"""The actors' side of a replay in Reverb."""

import contextlib
import time
from collections.abc import Callable, Sequence

import numpy as np

from ...datatypes import Row
from ..interface import never
from ..selectors import check_priorities
from ..windows import Windows
from .library import reverb
from .tables import TABLE, Layout, Server

_ROWS_AHEAD = 32  # not yet confirmed: a confirmation takes milliseconds
_POLL_MS = 500  # between the checks of a wait for whether it must end
_CONNECT_MS = 1000  # Reverb rounds this one down to whole seconds
_CLOSE_SECONDS = 3.0


class ReverbWriter:
    """A `Writer` of the items that a `LocalReplay` would make of the same rows.

    Starts are counted from the writer's first row, or from the episode's where sequences must not
    cross episodes; sequences that reach the end of their episode are padded with rows of zeros.

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
        """Connects to "host:port" as `NodeWriter` to a peer."""
        server = Server(address, layout, stop=stop, max_wait=max_wait)
        self._layout = layout
        self._streams = server.connect(lambda: [_Stream(number, server) for number in environments])

    def write(self, rows: Row, new_priority: float = 1.0) -> None:
        """As `NodeWriter.write`; a wrong priority is a ValueError, too."""
        check_priorities(np.array([new_priority]), 1)
        if len(rows.is_last) != len(self._streams):
            raise ValueError(
                f"rows must be of {len(self._streams)} environments, got {len(rows.is_last)}."
            )
        columns = self._layout.packing.pack(rows)
        for stream, first, last, *packed in zip(
            self._streams, rows.is_first, rows.is_last, *columns, strict=True
        ):
            stream.write(packed, new_priority, is_first=bool(first), is_last=bool(last))

    def close(self) -> None:
        """Sends the rest in a few seconds, and disconnects."""
        streams, self._streams = self._streams, []
        deadline = time.monotonic() + _CLOSE_SECONDS
        for stream in streams:
            stream.close(deadline)


class _Stream:
    """The rows of one environment, and Reverb's writer for them."""

    def __init__(self, environment: int, server: Server):
        self._environment, self._server = environment, server
        sequence = server.layout.sequence
        self._windows = Windows(sequence.length, sequence.period, sequence.frame_stack - 1)
        self._pads = not sequence.crosses_episodes
        # Actors may be ahead of a table by the sequences that are incomplete at a time.
        self._pending = -(-max(sequence.length, _ROWS_AHEAD) // sequence.period)
        self._time = 0  # rows since starts are counted
        num_refs = self._windows.before + sequence.length * (1 + self._pads)
        self._writer = server.client.trajectory_writer(
            num_refs, get_signature_timeout_ms=_CONNECT_MS
        )
        row_bytes, *once = [part.dtype.itemsize for part in server.layout.packing.parts]
        self._zeros = [np.zeros(row_bytes, np.uint8), *([None] * len(once))]
        self._append_zeros(self._windows.before)

    def write(
        self, columns: list[np.ndarray], priority: float, *, is_first: bool, is_last: bool
    ) -> None:
        if self._pads and is_first:
            self._time = 0
        rows, *once = columns
        starts = self._time % self._windows.period == 0
        self._writer.append([rows, *(once if starts else [None] * len(once))])
        self._time += 1
        ages = self._complete(self._pads and is_last)
        length = self._windows.length
        missing = max((length - age for age in ages), default=0)
        self._append_zeros(missing)
        for age in ages:
            self._create(age + missing, priority)
        if ages:
            self._server.retry(
                lambda: self._writer.flush(self._pending, _POLL_MS),
                (reverb.errors.DeadlineExceededError,),
                f"the replay to accept the rows of environment {self._environment}",
            )

    def close(self, deadline: float) -> None:
        late = reverb.errors.DeadlineExceededError  # the table takes no more
        with contextlib.closing(self._writer), contextlib.suppress(late):
            self._writer.flush(0, max(1, int(1000 * (deadline - time.monotonic()))))

    def _append_zeros(self, num_rows: int) -> None:
        for _ in range(num_rows):
            self._writer.append(self._zeros)

    def _complete(self, ends: bool) -> list[int]:
        """Rows since the start of each item that the newest row completes; it may end them all."""
        start, is_complete = self._windows.completed(self._time, 0)
        ages = [self._time - start] * is_complete
        if ends:
            starts, chosen = self._windows.ended(*np.array([self._time, 0]))
            ages += (self._time - starts[chosen]).tolist()
        return ages

    def _create(self, age: int, priority: float) -> None:
        """Makes an item of a sequence that began `age` rows ago."""
        rows, *once = self._writer.history
        begin, end = -age - self._windows.before, self._windows.length - age
        item = [rows[begin : end or None], *(column[-age] for column in once)]
        self._writer.create_item(TABLE, priority, item)
