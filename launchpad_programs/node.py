"""A node of a program: a part that works in steps until it is stopped."""

import contextlib

from ..replay.waiting import Stopped
from ..runtime.stop import StopEvent

_POLL_SECONDS = 0.1


class Node:
    """A node is run by one thread of its own; its public methods may be called by other nodes."""

    def __init__(self, stop: StopEvent):
        """Takes the event that ends `run`."""
        self._stop = stop

    def start(self) -> None:
        """Prepares its work; raises `Stopped` if the program ends before."""

    def step(self) -> bool:
        """Works for about a second at most; whether there was anything to do."""
        return False

    def close(self) -> None:
        """Saves what it must, and closes its parts."""

    def run(self) -> None:
        """Starts, steps until the program ends, and closes, unless an error ends it."""
        with contextlib.suppress(Stopped):
            self.start()
            while not self._stop.is_set():
                if not self.step():
                    self._stop.wait(_POLL_SECONDS)
        self.close()
