"""Interruptible waits for a Reverb server that report why they timed out."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from ..interface import Stopped, WaitTimeout, never
from .library import reverb
from .tables import TABLE, Layout

_ANSWER_SECONDS = 2  # until a server describes its tables
_POLL_SECONDS = 0.5  # between attempts to connect
_CALLS_AHEAD = 16  # submitted, but not yet made
_T = TypeVar("_T")


class Server:
    """A table of the Reverb server at an address, "host:port", or of a client's server.

    Waits for it end when `stop()` is true (`Stopped`), or after `max_wait` seconds (`WaitTimeout`).
    """

    def __init__(
        self,
        address: str | reverb.Client,
        layout: Layout,
        *,
        stop: Callable[[], bool] = never,
        max_wait: float,
    ):
        self.client = reverb.Client(address) if isinstance(address, str) else address
        self.layout, self.max_wait, self._stop = layout, max_wait, stop

    def connect(self, make: Callable[[], _T]) -> _T:
        """Waits for the server, checks its table (see `Layout`), and makes something of it."""

        def attempt() -> _T:
            self.layout.check_server(self.client)
            return make()

        errors = (reverb.errors.ReverbError, RuntimeError)
        return self.retry(attempt, errors, "the replay's server", pause=_POLL_SECONDS)

    def retry(
        self,
        attempt: Callable[[], _T],
        errors: tuple[type[Exception], ...],
        what: str,
        *,
        pause: float = 0.0,
    ) -> _T:
        """Repeats an attempt, of about a second at most, until it raises none of these errors."""
        started = time.monotonic()
        while True:
            try:
                return attempt()
            except errors:
                if self._stop():
                    raise Stopped(f"Stopped while waiting for {what}.") from None
            waited = time.monotonic() - started
            if waited >= self.max_wait:
                raise self.timeout(what, waited)
            time.sleep(pause)

    def timeout(self, what: str, seconds: float) -> WaitTimeout:
        """An error that says what was waited for, and describes the table."""
        return WaitTimeout(f"Waited {seconds:.0f} s for {what}: {self.describe()}.")

    def describe(self) -> str:
        """One clause about the table: size, minimum, inserts and samples; never raises or hangs."""
        address = self.client.server_address
        try:
            info = self.client.server_info(timeout=_ANSWER_SECONDS).get(TABLE)
        except (reverb.errors.ReverbError, RuntimeError):
            return f"no Reverb server answers at {address}"
        if info is None:
            return f"the Reverb server at {address} has no table {TABLE}"
        limits = info.rate_limiter_info
        return (
            f"table {TABLE} at {address} holds {info.current_size} of at most {info.max_size} "
            f"items (minimum {limits.min_size_to_sample}), after "
            f"{limits.insert_stats.completed} inserts and {limits.sample_stats.completed} samples"
        )


class ServerCalls:
    """Makes calls that can neither be interrupted nor given a timeout, in order, in a thread."""

    def __init__(self, server: Server):
        self._server = server
        self._calls: queue.Queue[Callable[[], Any] | None] = queue.Queue(_CALLS_AHEAD)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="calls to Reverb", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any], what: str) -> None:
        """Has a call made later; waits `max_wait` seconds for `what` if too many are pending.

        A call that raises RuntimeError is made once more: making it twice must do no harm. Raises
        what an earlier call has raised.
        """
        if self._error is not None:
            raise self._error
        try:
            self._calls.put(call, timeout=self._server.max_wait)
        except queue.Full:
            raise self._server.timeout(what, self._server.max_wait) from None

    def result(self, call: Callable[[], _T], what: str) -> _T:
        """The result of a call within `max_wait` seconds; raises what it or an earlier one does."""
        answer: futures.Future[_T] = futures.Future()

        def make() -> None:
            try:
                answer.set_result(call())
            except Exception as error:
                answer.set_exception(error)

        self.submit(make, what)
        try:
            return answer.result(self._server.max_wait)
        except futures.TimeoutError:
            raise self._server.timeout(what, self._server.max_wait) from None

    def close(self) -> None:
        """Ends the thread after the pending calls, or leaves it if its server is gone."""
        try:
            self._calls.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(1.0)

    def _run(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                try:
                    call()
                except RuntimeError:  # its server died meanwhile; the next one waits for it
                    call()
        except Exception as error:
            self._error = error
