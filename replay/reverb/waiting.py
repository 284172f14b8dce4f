"""Interruptible waits for a Reverb server that report why they timed out."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from ..interface import Stopped, WaitTimeout, never
from .library import reverb

_ANSWER_SECONDS = 2  # until a server describes its tables
_CALLS_AHEAD = 16  # submitted, but not yet made
_T = TypeVar("_T")


def describe(client: reverb.Client, table: str) -> str:
    """One clause about a table: size, minimum, inserts and samples; never raises or hangs."""
    try:
        info = client.server_info(timeout=_ANSWER_SECONDS).get(table)
    except (reverb.errors.ReverbError, RuntimeError):
        return f"no Reverb server answers at {client.server_address}"
    if info is None:
        return f"the Reverb server at {client.server_address} has no table {table}"
    limits = info.rate_limiter_info
    return (
        f"table {table} at {client.server_address} holds {info.current_size} of at most "
        f"{info.max_size} items (minimum {limits.min_size_to_sample}), after "
        f"{limits.insert_stats.completed} inserts and {limits.sample_stats.completed} samples"
    )


def retry(
    attempt: Callable[[], _T],
    errors: tuple[type[Exception], ...],
    *,
    what: str,
    client: reverb.Client,
    table: str,
    stop: Callable[[], bool] = never,
    max_wait: float,
    pause: float = 0.0,
) -> _T:
    """Repeats an attempt until it raises none of some errors.

    Args:
      attempt: takes about a second at most.
      errors: after which it is repeated, `pause` seconds later.
      what: what is waited for, for the message.
      client: of the server.
      table: the table that the message describes.
      stop: whether to stop waiting.
      max_wait: seconds after which waiting is an error.
      pause: see `errors`.

    Raises:
      Stopped: `stop()` became true.
      WaitTimeout: the attempts failed for `max_wait` seconds.
    """
    started = time.monotonic()
    while True:
        try:
            return attempt()
        except errors:
            if stop():
                raise Stopped(f"Stopped while waiting for {what}.") from None
        waited = time.monotonic() - started
        if waited >= max_wait:
            raise WaitTimeout(f"Waited {waited:.0f} s for {what}: {describe(client, table)}.")
        time.sleep(pause)


class ServerCalls:
    """Makes calls that can neither be interrupted nor given a timeout, in order, in a thread."""

    def __init__(self, client: reverb.Client, table: str, *, max_wait: float):
        """Starts the thread; the arguments are those of `retry`."""
        self._client, self._table, self._max_wait = client, table, max_wait
        self._calls: queue.Queue[Callable[[], Any] | None] = queue.Queue(_CALLS_AHEAD)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="calls to Reverb", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any], what: str) -> None:
        """Has a call made later; `what` is waited for if too many calls are pending.

        A call that raises RuntimeError is made once more: making it twice must do no harm.

        Raises:
          WaitTimeout: none of the pending calls ended for `max_wait` seconds.
          Exception: raised by an earlier call.
        """
        if self._error is not None:
            raise self._error
        try:
            self._calls.put(call, timeout=self._max_wait)
        except queue.Full:
            raise self._timeout(what) from None

    def result(self, call: Callable[[], _T], what: str) -> _T:
        """Returns the result of a call.

        Raises:
          WaitTimeout: there was none within `max_wait` seconds.
          Exception: raised by this call, or by an earlier one.
        """
        answer: futures.Future[_T] = futures.Future()

        def make() -> None:
            try:
                answer.set_result(call())
            except Exception as error:
                answer.set_exception(error)

        self.submit(make, what)
        try:
            return answer.result(self._max_wait)
        except futures.TimeoutError:
            raise self._timeout(what) from None

    def close(self) -> None:
        """Ends the thread after the pending calls, or leaves it if its server is gone."""
        try:
            self._calls.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(1.0)

    def _timeout(self, what: str) -> WaitTimeout:
        return WaitTimeout(
            f"Waited {self._max_wait:.0f} s for {what}: {describe(self._client, self._table)}."
        )

    def _run(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                try:
                    call()
                except RuntimeError:  # its server died meanwhile; the next one waits for it
                    call()
        except Exception as error:
            self._error = error
