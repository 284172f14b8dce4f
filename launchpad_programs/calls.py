"""Calls to other nodes: over Courier, in pieces of a second, until asked to stop.

A call over Courier cannot be interrupted, so each has a short timeout and is repeated: what is
called must bear to be called twice.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from courier.python.client import StatusNotOk

from ..replay.waiting import Stopped
from .lifecycle import StopEvent

CALL_SECONDS = 1.0  # the timeout that clients are made with
_PATIENCE_SECONDS = 120.0
_NO_ANSWER = ("DEADLINE_EXCEEDED", "UNAVAILABLE")


class CounterCalls(Protocol):
    """What the nodes call: `counting.Counter`, or something that calls it over Courier."""

    def start(self, counters: Mapping[str, Any], metric_names: list[str]) -> None:
        """The learner is ready."""

    def claim(self, name: str, number: int, taken: int, values: Mapping[str, Any]) -> int:
        """Asks for steps."""
        ...

    def report(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Tells how the node is."""
        ...


def patient(
    method: Callable[..., Any], what: str, stop: StopEvent, *, patience: float = _PATIENCE_SECONDS
) -> Callable[..., Any]:
    """The method, repeated until it answers.

    Args:
      method: of a Courier client, or of the object itself in a program of one process.
      what: who is called, for the message.
      stop: when to give up.
      patience: seconds after which no answer is an error.

    Returns:
      A function that raises `Stopped` if there is no answer before the program ends, TimeoutError
      if there is none for too long, RuntimeError with the other's traceback if the method raised.
    """

    def call(*arguments: Any) -> Any:
        started = time.monotonic()
        while True:
            try:
                return method(*arguments)
            except StatusNotOk as error:
                if error.code.name not in _NO_ANSWER:
                    raise RuntimeError(f"{what} refused a call: {error}") from None
            if stop.is_set():
                raise Stopped(f"{what} gave no answer before the program ended.")
            waited = time.monotonic() - started
            if waited >= patience:
                raise TimeoutError(f"{what} gave no answer for {waited:.0f} s.")

    return call


class CounterClient:
    """A counter's client whose calls are repeated until they are answered."""

    def __init__(self, client: Any, stop: StopEvent):
        """Takes a Courier client."""
        self.start = patient(client.start, "The counter", stop)
        self.claim = patient(client.claim, "The counter", stop)
        self.report = patient(client.report, "The counter", stop)
