"""Waiting for Reverb: in pieces of a second, until asked to stop, and with a reason at the end."""

import threading
import time
from collections.abc import Callable
from typing import Any

from .reverb_library import reverb
from .waiting import ReplayTimeout, Stopped, never

_ANSWER_SECONDS = 2  # how long a server may take to tell about its tables


def describe(client: reverb.Client, table: str) -> str:
    """One clause about a table: its size, minimum, inserts and samples; never raises or hangs."""
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


class Wait:
    """One wait: each `check` raises if it must end."""

    def __init__(
        self,
        what: str,
        client: reverb.Client,
        table: str,
        *,
        stop: Callable[[], bool] = never,
        patience: float,
    ):
        """Starts waiting.

        Args:
          what: what is waited for, the subject of the message.
          client: of the server.
          table: whose state the message tells.
          stop: whether the program is to end.
          patience: seconds after which waiting is an error.
        """
        self._what, self._client, self._table = what, client, table
        self._stop, self._patience = stop, patience
        self._started = time.monotonic()

    def check(self) -> None:
        """Call it at least once a second.

        Raises:
          Stopped: the program is to end.
          ReplayTimeout: the patience is at its end.
        """
        if self._stop():
            raise Stopped(f"Stopped while waiting for {self._what}.")
        waited = time.monotonic() - self._started
        if waited >= self._patience:
            raise ReplayTimeout(
                f"Waited {waited:.0f} s for {self._what}: {describe(self._client, self._table)}."
            )


def call(function: Callable[[], Any], what: str, seconds: float) -> Any:
    """Calls what can neither be interrupted nor given a timeout, in a thread that may be left.

    Args:
      function: without arguments.
      what: the subject of the message.
      seconds: how long it may take.

    Raises:
      ReplayTimeout: it took longer.
      Exception: whatever the function raised.
    """
    results: list[Any] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(function())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise ReplayTimeout(f"Waited {seconds:.0f} s for {what}.")
    return results[0]
