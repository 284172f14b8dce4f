"""How a node calls another one, whatever carries the calls.

Arguments and results are plain: numbers, text, bytes, NumPy arrays, and tuples, lists and
dictionaries of these. The node that answers may change nothing in the arguments, and the caller
nothing in the result. A call that is made twice must do no harm.
"""

from typing import Any, Protocol


class Answer(Protocol):
    """The answer to a call, which may not be there yet."""

    def result(self, timeout: float) -> Any:
        """Waits for the answer; may be called again.

        Args:
          timeout: seconds to wait; 0 does not wait.

        Raises:
          TimeoutError: there is none yet.
          PeerLost: the node died before it answered. The call must be made again.
          RuntimeError: the call failed; with the traceback of the other node.
        """


class Peer(Protocol):
    """Another node."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method and waits for the answer, across restarts of the node.

        Raises:
          Stopped: the program stops.
          WaitTimeout: there was no answer for too long; names what was waited for.
          RuntimeError: the call failed; with the traceback of the other node.
        """

    def send(self, method: str, *arguments: Any) -> Answer:
        """Calls a method, and does not wait for the answer, which raises what goes wrong."""


class DirectPeer:
    """A `Peer` that is an object of this process; `send` makes the call at once.

    Errors of the object are raised as they are.
    """

    def __init__(self, node: Any):
        """Takes the object whose methods are called."""
        self._node = node

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls the method."""
        return getattr(self._node, method)(*arguments)

    def send(self, method: str, *arguments: Any) -> Answer:
        """Calls the method."""
        return _Answer(self.call(method, *arguments))


class _Answer:
    def __init__(self, result: Any):
        self._result = result

    def result(self, timeout: float) -> Any:
        del timeout
        return self._result
