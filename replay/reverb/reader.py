"""Reads a Reverb table in a thread: Reverb's reads cannot be interrupted."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from .library import reverb

_POLL_SECONDS = 0.5  # between the checks of a wait for whether it must end
_T = TypeVar("_T")


class Item(NamedTuple):
    """One item of a table, as it was drawn.

    Attributes:
      key: Reverb's, for `mutate_priorities`.
      probability: of drawing it.
      table_size: items in the table.
      priority: of the item.
      columns: its data.
    """

    key: int
    probability: float
    table_size: int
    priority: float
    columns: list[np.ndarray]


class Reader(Generic[_T]):
    """Reads a table continuously, assembles results from the items, and keeps a few ahead.

    While the server is away the thread waits inside of Reverb, and continues when it is back. The
    reader must be closed before a server in the same process is stopped: Reverb would keep its
    thread.
    """

    def __init__(
        self,
        address: str,
        table: str,
        assemble: Callable[[Iterator[Item]], _T],
        *,
        in_flight: int,
        ahead: int,
        max_wait: float,
    ):
        """Starts reading.

        Args:
          address: "host:port" of the server.
          table: its name.
          assemble: takes the items of one result from an endless iterator; called in the thread.
          in_flight: items that Reverb may read ahead.
          ahead: results that may wait to be taken, at least 1.
          max_wait: seconds to wait for the server at the start.
        """
        self._address, self._table, self._assemble = address, table, assemble
        self._in_flight, self._max_wait = in_flight, max_wait
        self._results: queue.Queue[_T] = queue.Queue(ahead)
        self._closed = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"read {table}", daemon=True)
        self._thread.start()

    def take(self, timeout: float) -> _T | None:
        """The next result, or None if there is none within `timeout` seconds.

        Raises:
          Exception: the error that ended the thread.
        """
        deadline = time.monotonic() + timeout
        while True:
            if self._error is not None:
                raise self._error
            remaining = deadline - time.monotonic()
            try:
                if remaining <= 0:
                    return self._results.get_nowait()
                return self._results.get(timeout=min(remaining, _POLL_SECONDS))
            except queue.Empty:
                if remaining <= 0:
                    return None

    def close(self) -> None:
        """Ends the thread, or leaves it if its server is gone."""
        self._closed.set()
        self._thread.join(3 * _POLL_SECONDS)

    def _run(self) -> None:
        try:
            items = self._items()
            while not self._closed.is_set():
                self._put(self._assemble(items))
        except _ClosedError:
            pass
        except Exception as error:
            self._error = error

    def _put(self, result: _T) -> None:
        while not self._closed.is_set():
            try:
                return self._results.put(result, timeout=_POLL_SECONDS)
            except queue.Full:
                pass
        return None

    def _items(self) -> Iterator[Item]:
        dataset = self._connect()
        while True:
            # A pass ends when nothing arrived for a while; it has returned everything it read.
            for sample in dataset:
                self._check()
                info = sample.info
                yield Item(
                    int(info.key),
                    float(info.probability),
                    int(info.table_size),
                    float(info.priority),
                    [np.asarray(column) for column in sample.data],
                )
            self._check()

    def _connect(self) -> Any:
        deadline = time.monotonic() + self._max_wait
        while True:
            self._check()
            try:
                return reverb.TrajectoryDataset.from_table_signature(
                    self._address,
                    self._table,
                    max_in_flight_samples_per_worker=self._in_flight,
                    num_workers_per_iterator=1,
                    rate_limiter_timeout_ms=int(1000 * _POLL_SECONDS),
                    get_signature_timeout_secs=1,
                )
            except reverb.errors.ReverbError:
                if time.monotonic() > deadline:
                    raise

    def _check(self) -> None:
        if self._closed.is_set():
            raise _ClosedError


class _ClosedError(Exception):
    pass
