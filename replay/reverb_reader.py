"""Items out of a Reverb table, in a thread of their own: Reverb's reads cannot be interrupted."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from .reverb_library import reverb
from .reverb_waiting import never

_PIECE_SECONDS = 0.5  # how long a wait goes on before it looks whether it must end
_T = TypeVar("_T")


class Item(NamedTuple):
    """One item.

    Attributes:
      key: Reverb's, for `mutate_priorities`.
      probability: of drawing it, when it was drawn.
      table_size: items in the table then.
      priority: its own then.
      columns: its data.
    """

    key: int
    probability: float
    table_size: int
    priority: float
    columns: list[np.ndarray]


class Reader(Generic[_T]):
    """Reads a table for ever, makes something of the items, and keeps a few ahead.

    While a server is away the thread waits inside of Reverb, and goes on when it is back. Close
    the reader before a server in the same process is stopped: Reverb would keep its thread.
    """

    def __init__(
        self,
        address: str,
        table: str,
        make: Callable[[Iterator[Item]], _T],
        *,
        in_flight: int,
        ahead: int,
        patience: float,
    ):
        """Starts reading.

        Args:
          address: "host:port" of the server.
          table: its name.
          make: takes as many items as it needs from an endless iterator; called in the thread.
          in_flight: items that Reverb may read ahead.
          ahead: made things that wait to be taken, at least 1.
          patience: seconds to wait for the server at the beginning.
        """
        self._address, self._table, self._make = address, table, make
        self._in_flight, self._patience = in_flight, patience
        self._made: queue.Queue[_T] = queue.Queue(ahead)
        self._closed = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"read {table}", daemon=True)
        self._thread.start()

    def take(self, timeout: float, stop: Callable[[], bool] = never) -> _T | None:
        """The next made thing, or None if there is none within `timeout` seconds.

        Raises:
          Exception: what ended the thread.
        """
        deadline = time.monotonic() + timeout
        while True:
            if self._error is not None:
                raise self._error
            remaining = deadline - time.monotonic()
            try:
                if remaining <= 0:
                    return self._made.get_nowait()
                return self._made.get(timeout=min(remaining, _PIECE_SECONDS))
            except queue.Empty:
                if remaining <= 0 or stop():
                    return None

    def close(self) -> None:
        """Ends the thread, or leaves it to itself if its server is gone."""
        self._closed.set()
        self._thread.join(3 * _PIECE_SECONDS)

    def _run(self) -> None:
        try:
            items = self._items()
            while not self._closed.is_set():
                self._put(self._make(items))
        except _ClosedError:
            pass
        except Exception as error:
            self._error = error

    def _put(self, made: _T) -> None:
        while not self._closed.is_set():
            try:
                return self._made.put(made, timeout=_PIECE_SECONDS)
            except queue.Full:
                pass
        return None

    def _items(self) -> Iterator[Item]:
        dataset = self._connect()
        while True:
            # A pass ends when nothing came for a while; what was read before has been given out.
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
        deadline = time.monotonic() + self._patience
        while True:
            self._check()
            try:
                return reverb.TrajectoryDataset.from_table_signature(
                    self._address,
                    self._table,
                    max_in_flight_samples_per_worker=self._in_flight,
                    num_workers_per_iterator=1,
                    rate_limiter_timeout_ms=int(1000 * _PIECE_SECONDS),
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
