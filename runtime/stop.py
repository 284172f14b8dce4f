"""Stop requests: signals turned into an event that every loop watches."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol


class StopEvent(Protocol):
    """What a loop watches; `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether the loop must end."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Sleeps until the event is set, at most `timeout` seconds; whether it is set."""
        ...


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Sets an event on the first SIGINT, SIGTERM or SIGHUP; the second raises KeyboardInterrupt.

    Outside of the main thread, where Python handles no signals, the event is never set.
    """
    stop = threading.Event()

    def request(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, request) for n in numbers} if in_main_thread else {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
