"""Reads a Reverb table in a thread: Reverb's reads cannot be interrupted. `B` denotes the batch.

A batch is a `ReplaySample` of Reverb, of arrays `[B, ...]`: `info` has keys, probabilities and
priorities of the items and the table's sizes when they were drawn, `data` their columns.
"""

import contextlib
import functools
import queue
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..interface import Stopped
from .library import reverb, tensorflow
from .tables import TABLE, Layout
from .waiting import Server

_POLL_SECONDS = 0.5  # between the checks of a wait for whether it must end


class Reader:
    """Reads batches of a table continuously: Reverb draws one ahead, and one is kept.

    While the server is away the thread waits inside of Reverb, and continues when it is back. The
    reader must be closed before a server in the same process is stopped: Reverb would keep its
    thread.
    """

    def __init__(self, address: str, layout: Layout, *, batch_size: int, max_wait: float):
        """Starts reading; waits `max_wait` seconds for the server at the start."""
        self._closed = threading.Event()
        self._server = Server(address, layout, stop=self._closed.is_set, max_wait=max_wait)
        self._batch_size = batch_size
        # Not a SimpleQueue: in Python 3.10 its `get(timeout=0)` seldom waits without end, when the
        # thread loses the processor between the two looks at the clock.
        self._results: queue.Queue[Any] = queue.Queue()
        self._taken = threading.Semaphore(0)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="read Reverb", daemon=True)
        self._thread.start()

    def take(self, timeout: float) -> Any:
        """The next batch, or None if there is none within `timeout` seconds.

        Raises what ended the thread: WaitTimeout if no server answered for `max_wait` seconds,
        ValueError if its table is missing or has another layout.
        """
        if self._error is None:
            try:
                result = self._results.get(timeout=max(timeout, 0.0))
            except queue.Empty:
                return None
            if not isinstance(result, Exception):
                self._taken.release()
                return result
            self._error = result
        raise self._error

    def close(self) -> None:
        """Ends the thread, or leaves it if its server is gone."""
        self._closed.set()
        self._taken.release()
        self._thread.join(3 * _POLL_SECONDS)

    def _run(self) -> None:
        with contextlib.suppress(Stopped):
            try:
                for batch in self._batches():
                    self._results.put(batch)
                    self._taken.acquire()
            except Exception as error:
                self._results.put(error)

    def _batches(self) -> Iterator[Any]:
        """Batches of B items out of Reverb's, which are smaller if nothing arrived for a while."""
        pieces: list[Any] = []
        for piece in self._pieces():
            pieces.append(piece)
            while (missing := self._batch_size - sum(len(each.info.key) for each in pieces)) <= 0:
                joined = pieces[0]
                if len(pieces) > 1:
                    joined = jax.tree.map(lambda *x: np.concatenate(x), *pieces)
                yield jax.tree.map(lambda x: x[: self._batch_size], joined)
                rest = jax.tree.map(lambda x: x[self._batch_size :], joined)
                pieces = [rest] if missing else []

    def _pieces(self) -> Iterator[Any]:
        wait = functools.partial(
            self._server.retry, what="the replay's server", pause=_POLL_SECONDS
        )
        dataset = self._server.connect(self._dataset)
        while not self._closed.is_set():
            # A pass ends when nothing arrived for a while; it has returned everything it read. The
            # next one cannot begin while the server dies: its connection is reset.
            for sample in wait(dataset.as_numpy_iterator, (tensorflow.errors.InternalError,)):
                if self._closed.is_set():
                    break
                yield sample
        raise Stopped("The reader was closed.")

    def _dataset(self) -> Any:
        signature = self._server.layout.signature()
        # Two workers read 1.2 times as many items per second as one with as many in flight
        # (benchmarks/reverb_replay.py).
        workers = min(2, self._batch_size)
        dataset = reverb.TrajectoryDataset(
            self._server.client.server_address,
            TABLE,
            dtypes=tuple(spec.dtype for spec in signature),
            shapes=tuple(spec.shape for spec in signature),
            max_in_flight_samples_per_worker=-(-self._batch_size // workers),
            num_workers_per_iterator=workers,
            rate_limiter_timeout_ms=int(1000 * _POLL_SECONDS),
        )
        return dataset.batch(self._batch_size)
