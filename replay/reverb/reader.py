"""Reads a Reverb table in a thread: Reverb's reads cannot be interrupted."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ..waiting import Stopped
from .library import reverb
from .waiting import retry

_POLL_SECONDS = 0.5  # between the checks of a wait for whether it must end
_RESULTS_AHEAD = 1
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
        max_wait: float,
    ):
        """Starts reading.

        Args:
          address: "host:port" of the server.
          table: its name.
          assemble: takes the items of one result from an endless iterator; called in the thread.
          in_flight: items that Reverb may read ahead.
          max_wait: seconds to wait for the server at the start.
        """
        self._client, self._table, self._assemble = reverb.Client(address), table, assemble
        self._in_flight, self._max_wait = in_flight, max_wait
        self._results: queue.Queue[_T | Exception] = queue.Queue(_RESULTS_AHEAD)
        self._closed = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"read {table}", daemon=True)
        self._thread.start()

    def take(self, timeout: float) -> _T | None:
        """The next result, or None if there is none within `timeout` seconds.

        Raises:
          WaitTimeout: no server answered for `max_wait` seconds at the start.
          Exception: any other error that ended the thread.
        """
        if self._error is None:
            try:
                result = self._results.get(timeout=max(timeout, 0.0))
            except queue.Empty:
                return None
            if not isinstance(result, Exception):
                return result
            self._error = result
        raise self._error

    def close(self) -> None:
        """Ends the thread, or leaves it if its server is gone."""
        self._closed.set()
        self._thread.join(3 * _POLL_SECONDS)

    def _run(self) -> None:
        with contextlib.suppress(Stopped):
            try:
                items = self._items()
                while True:
                    self._put(self._assemble(items))
            except Exception as error:
                self._put(error)

    def _put(self, result: _T | Exception) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                return self._results.put(result, timeout=_POLL_SECONDS)
        raise Stopped("The reader was closed.")

    def _items(self) -> Iterator[Item]:
        dataset = retry(
            self._connect,
            (reverb.errors.ReverbError,),
            what="the replay's server",
            client=self._client,
            table=self._table,
            stop=self._closed.is_set,
            max_wait=self._max_wait,
        )
        while not self._closed.is_set():
            # A pass ends when nothing arrived for a while; it has returned everything it read.
            for sample in dataset:
                if self._closed.is_set():
                    break
                info = sample.info
                yield Item(
                    int(info.key),
                    float(info.probability),
                    int(info.table_size),
                    float(info.priority),
                    [np.asarray(column) for column in sample.data],
                )
        raise Stopped("The reader was closed.")

    def _connect(self) -> Any:
        return reverb.TrajectoryDataset.from_table_signature(
            self._client.server_address,
            self._table,
            max_in_flight_samples_per_worker=self._in_flight,
            num_workers_per_iterator=1,
            rate_limiter_timeout_ms=int(1000 * _POLL_SECONDS),
            get_signature_timeout_secs=1,
        )
