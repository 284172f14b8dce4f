"""How a node calls another one, whatever carries the calls.

Arguments and results are plain: numbers, text, bytes, NumPy arrays, and tuples, lists and
dictionaries of these. The node that answers may change nothing in the arguments, and the caller
nothing in the result. A call that is made twice must do no harm.
"""

from concurrent.futures import Future
from typing import Any, Protocol

from .packing import SequencePacking


class Answer(Protocol):
    """The answer to a call, which may not be there yet."""

    def result(self, timeout: float) -> Any:
        """Waits `timeout` seconds, or not at all, for the answer; may be called again.

        Raises:
          TimeoutError: there is none yet.
          PeerLost: the node died before it answered. The call must be made again.
          RuntimeError: the call failed, with the traceback of the other node.
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
        self._node = node

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls the method."""
        return getattr(self._node, method)(*arguments)

    def send(self, method: str, *arguments: Any) -> Answer:
        """Calls the method."""
        answer: Future[Any] = Future()
        answer.set_result(self.call(method, *arguments))
        return answer


def check_greeting(peer: Peer, packing: SequencePacking, num_envs: int) -> None:
    """Refuses (ValueError) a `ReplayNode` with rows of another layout, or fewer environments."""
    greeting = peer.call("greet")
    if greeting["layout"] != packing.layout:
        raise ValueError(
            f"The replay's rows have the layout {greeting['layout']}, those here {packing.layout}: "
            "all nodes need the same agent, environment, config and version."
        )
    if greeting["num_envs"] < num_envs:
        raise ValueError(
            f"The replay was made for {greeting['num_envs']} environments, numbered from "
            f"0, but those of this node end with number {num_envs - 1}."
        )
