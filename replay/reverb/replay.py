"""The learner's side of a replay over Reverb. `B` denotes the batch.

A batch of Reverb's is a `ReplaySample` of arrays `[B, ...]`: `info` has keys, probabilities and
priorities of the items and the table's sizes when they were drawn, `data` their columns.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any, TypeVar

import jax
import numpy as np

from ...datatypes import Sample
from ..interface import Draw, ReplayStatus, Stopped, WaitTimeout
from ..rows import check_stored_as, sample_shapes, stored_as
from ..selectors import LARGEST_PRIORITY, check_priorities, importance_weights
from .library import reverb, tensorflow
from .tables import TABLE, Layout, Server

_CHECKPOINT = "reverb_checkpoint"
_POLL_SECONDS = 0.5  # between the checks of a wait for whether it must end
_CALLS_AHEAD = 16  # submitted, but not yet made
_T = TypeVar("_T")


class ReverbReplay:
    """A `Replay` of batches drawn by a Reverb table, read ahead in a thread.

    For proportional and uniform selection. The table's rate limiter keeps the ratio of acting steps
    to updates. Reverb cannot mix uniform draws in, so `uniform_fraction` becomes a lower bound on
    the stored powers of priorities: with m their mean, `p ** alpha + uniform_fraction * m` gives
    the same mixture.

    Keys are Reverb's, uint64 `[B]`.
    """

    metric_names: tuple[str, ...] = ()

    def __init__(self, address: str, layout: Layout, *, num_envs: int, max_wait: float = 600.0):
        """Starts reading from "host:port"; `max_wait` seconds are for each answer."""
        self._layout, self._config = layout, layout.config
        self.shapes = sample_shapes(
            layout.environment_spec, layout.sequence, layout.config, num_envs=num_envs
        )
        server = Server(address, layout, max_wait=max_wait)
        self._client, self._calls = server.client, ServerCalls(server)
        self._table_size, self._largest, self._mean_power = 0, 1.0, 1.0
        self._reader = Reader(address, layout, batch_size=self._config.draw_size, max_wait=max_wait)

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """The next batch that the table has drawn."""
        batch = self._reader.take(timeout)
        if batch is None:
            return None
        # Relative to a uniform draw from the table as it was at each draw.
        ratios = batch.info.probability * batch.info.table_size
        # An item's power over its ratio is the mean power in the table.
        powers = batch.info.priority**self._config.priority_exponent
        self._mean_power = float(np.mean(powers / ratios))
        self._table_size = int(batch.info.table_size[-1])
        weights = importance_weights(ratios, 1, self._config.importance_exponent)
        rows, mask = self._layout.packing.unpack(batch.data)
        sample = Sample(rows, weights.astype(np.float32), mask)
        return Draw(batch.info.key, sample, self._config.updates_per_call)

    def set_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sends priorities asynchronously; WaitTimeout if the server accepts none any more."""
        alpha = self._config.priority_exponent
        largest = LARGEST_PRIORITY ** (1 / max(1.0, alpha))
        priorities = check_priorities(priorities, len(keys), largest)
        if self._config.selector == "uniform":
            return
        self._largest = float(np.max(priorities, initial=self._largest))
        if alpha and self._config.uniform_fraction:
            bound = self._config.uniform_fraction * self._mean_power
            priorities = (priorities**alpha + bound) ** (1 / alpha)
        updates = dict(zip(keys.tolist(), priorities.tolist(), strict=True))
        self._calls.submit(
            lambda: self._client.mutate_priorities(TABLE, updates), "priorities to be accepted"
        )

    def metrics(self, keys: Any) -> dict[str, float]:
        """None: Reverb does not say how old an item is."""
        return {}

    def status(self) -> ReplayStatus:
        """At the newest batch: rows are estimated; `new_priority` is the largest so far."""
        return ReplayStatus(
            num_rows=self._table_size * self._layout.sequence.period,
            num_sequences=self._table_size,
            steps=None,
            learning_since=None,
            new_priority=self._largest,
        )

    def state(self) -> dict[str, Any]:
        """Makes Reverb write a checkpoint; the state holds its path."""
        try:
            path = self._calls.result(self._client.checkpoint, "Reverb's checkpoint")
        except RuntimeError as error:
            raise WaitTimeout(f"Reverb wrote no checkpoint: {error}") from error
        return {
            **stored_as(self._layout.sequence, self._config),
            _CHECKPOINT: np.frombuffer(path.encode(), np.uint8),
            "largest": np.array(self._largest),
            "mean_power": np.array(self._mean_power),
        }

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """See `Replay`; the rows are in the checkpoint that the server must have started with."""
        if _CHECKPOINT not in state:
            raise ValueError(
                "The snapshot holds the rows of a learner's own replay, which cannot fill a Reverb "
                "table: resume with the selector and the launcher of the original run."
            )
        check_stored_as(state, self._layout.sequence, self._config)
        self._largest, self._mean_power = float(state["largest"]), float(state["mean_power"])

    def close(self) -> None:
        """Ends the threads."""
        self._reader.close()
        self._calls.close()


class Reader:
    """Reads batches of a table continuously: Reverb draws one ahead, and one is kept.

    While the server is away the thread waits inside of Reverb, and continues when it is back. The
    reader must be closed before a server in the same process is stopped: Reverb would keep its
    thread.
    """

    def __init__(self, address: str, layout: Layout, *, batch_size: int, max_wait: float):
        self._closed = threading.Event()
        self._server = Server(address, layout, stop=self._closed.is_set, max_wait=max_wait)
        self._batch_size = batch_size
        # Not a SimpleQueue: in Python 3.10 its `get(timeout=0)` seldom waits without end, when the
        # thread loses the processor between the two looks at the clock.
        self._results: queue.Queue[Any] = queue.Queue()
        self._taken = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="read Reverb", daemon=True)
        self._thread.start()

    def take(self, timeout: float) -> Any:
        """The next batch, or None within `timeout` seconds; raises what ended the thread.

        WaitTimeout if no server answered for `max_wait` seconds, otherwise as `Server.connect`.
        """
        try:
            result = self._results.get(timeout=max(timeout, 0.0))
        except queue.Empty:
            return None
        if isinstance(result, Exception):
            self._results.put(result)  # for the next call
            raise result
        self._taken.release()
        return result

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
        dataset = self._server.connect(self._dataset)
        while not self._closed.is_set():
            # A pass ends when nothing arrived for a while; it has returned everything it read. The
            # next one cannot begin while the server dies: its connection is reset.
            begin, errors = dataset.as_numpy_iterator, (tensorflow.errors.InternalError,)
            what = "the replay's server"
            for sample in self._server.retry(begin, errors, what, pause=_POLL_SECONDS):
                if self._closed.is_set():
                    return
                yield sample

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


class ServerCalls:
    """Makes calls that can neither be interrupted nor given a timeout, in order, in a thread.

    A call that raises RuntimeError is made once more: making it twice must do no harm.
    """

    def __init__(self, server: Server):
        self._server = server
        self._calls: queue.Queue[Any] = queue.Queue(_CALLS_AHEAD)  # None: the end
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="calls to Reverb", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any], what: str) -> futures.Future[Any]:
        """Has a call made later, or raises what an earlier one did.

        Waits `max_wait` seconds for `what` if too many are pending.
        """
        if self._error is not None:
            raise self._error
        answer: futures.Future[Any] = futures.Future()
        try:
            self._calls.put((call, answer), timeout=self._server.max_wait)
        except queue.Full:
            raise self._server.timeout(what, self._server.max_wait) from None
        return answer

    def result(self, call: Callable[[], _T], what: str) -> _T:
        """The result of a call within `max_wait` seconds; raises what it or an earlier one does."""
        answer: futures.Future[_T] = self.submit(call, what)
        try:
            return answer.result(self._server.max_wait)
        except futures.TimeoutError:
            raise self._server.timeout(what, self._server.max_wait) from None

    def close(self) -> None:
        """Ends the thread after the pending calls, or leaves it if its server is gone."""
        with contextlib.suppress(queue.Full):
            self._calls.put_nowait(None)
            self._thread.join(1.0)

    def _run(self) -> None:
        while (entry := self._calls.get()) is not None:
            call, answer = entry
            try:
                try:
                    answer.set_result(call())
                except RuntimeError:  # its server died meanwhile; the next one waits for it
                    answer.set_result(call())
            except Exception as error:
                self._error = error
                answer.set_exception(error)
