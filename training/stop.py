"""Stop requests: signals turned into an event that every loop watches."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 1.0
StopEvent = threading.Event  # what a loop watches


class StopAtOnceError(KeyboardInterrupt):
    """A second signal."""


class EitherStop(threading.Event):
    """Is set with another event, which it does not set."""

    def __init__(self, other: StopEvent):
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        """Whether one of them is set."""
        return super().is_set() or self._other.is_set()


@contextlib.contextmanager
def stop_on_signals(doing: Callable[[], str] | None = None) -> Iterator[threading.Event]:
    """Sets an event on the first SIGINT, SIGTERM or SIGHUP; the second raises StopAtOnceError.

    Outside of the main thread, where Python handles no signals, the event is never set. If the
    program has not ended a second after the first signal, what it is `doing` is written to stderr.
    """
    stop = threading.Event()

    def request(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise StopAtOnceError
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, request) for n in numbers} if in_main_thread else {}
    ended = threading.Event()
    # A thread prints the message; signal handlers must not block.
    telling = threading.Thread(target=_tell, args=(doing, stop, ended), daemon=True)
    telling.start()
    try:
        yield stop
    finally:
        ended.set()
        telling.join()  # a thread that still runs when Python ends may abort it
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(doing: Callable[[], str] | None, stop: threading.Event, ended: threading.Event) -> None:
    """Prints what a stop waits for."""
    while doing is not None and not ended.wait(_POLL_SECONDS):
        if stop.is_set():
            if not ended.wait(_PATIENCE_SECONDS):
                sys.stderr.write(
                    f"Stopping: waiting for {doing()}. Ctrl-C again does not wait, and the newest "
                    "snapshot stays the last.\n"
                )
            return
