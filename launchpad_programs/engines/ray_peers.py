"""Nodes that call each other through Ray, which carries rows, draws and parameters, too.

A node is in an actor of Ray with the node's name. The actor's process may die and another one take
its name: calls then find the new one, and are made again.
"""

from typing import Any, NamedTuple

import ray

from ...replay.waiting import PeerLost
from ...runtime.stop import StopEvent
from ..config import ProgramConfig
from ..peers import Starting, title_of, until_answered
from .replay_peers import ReplayPeers

_ANSWER_SECONDS = 1.0  # after which a caller looks whether the program stops
_AHEAD = 2  # draws of the learner
_MAX_SILENCE = 120.0  # seconds without an answer


class NoResult(NamedTuple):
    """The answer of a node whose method returned nothing.

    Attributes:
      traceback: of the method's error; "" where the node is not made yet.
    """

    traceback: str


class RayAnswer:
    """The answer to a call of a node; a `replay.peer.Answer`."""

    def __init__(self, peer: "RayPeer", reference: Any):
        """Takes Ray's reference of the answer, None if the node was not there."""
        self._peer, self._reference = peer, reference

    def result(self, timeout: float) -> Any:
        """As `Answer.result`."""
        if self._reference is None:
            raise PeerLost(f"{self._peer.title} is not there.")
        try:
            answer = ray.get(self._reference, timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            raise TimeoutError(f"{self._peer.title} gave no answer for {timeout} s.") from None
        except ray.exceptions.RayError as error:
            self._peer.forget()
            raise PeerLost(f"{self._peer.title} died before it answered.") from error
        if isinstance(answer, NoResult):
            if answer.traceback:
                raise RuntimeError(f"{self._peer.title} refused a call: {answer.traceback}")
            raise Starting(f"{self._peer.title} starts.")
        return answer


class RayPeer:
    """A node in an actor of Ray; a `replay.peer.Peer`.

    Attributes:
      title: of the node, for messages.
    """

    def __init__(self, name: str, stop: StopEvent, *, max_wait: float = _MAX_SILENCE):
        """Takes the node's name, when to give up, and how many seconds of silence are an error."""
        self.title = title_of(name)
        self._node, self._stop, self._max_wait = name, stop, max_wait
        self._actor: Any = None

    def send(self, method: str, *arguments: Any) -> RayAnswer:
        """As `Peer.send`."""
        try:
            if self._actor is None:
                self._actor = ray.get_actor(self._node)
            return RayAnswer(self, self._actor.call.remote(method, *arguments))
        except (ValueError, ray.exceptions.RayActorError):  # no actor has the name
            self.forget()
            return RayAnswer(self, None)

    def call(self, method: str, *arguments: Any) -> Any:
        """As `Peer.call`. Ray loses no calls but with a process, so one is made again only then."""
        answer: RayAnswer | None = None

        def attempt() -> Any:
            nonlocal answer
            answer = answer or self.send(method, *arguments)
            try:
                return answer.result(_ANSWER_SECONDS)
            except PeerLost:
                answer = None
                raise

        return until_answered(attempt, self.title, self._stop, max_wait=self._max_wait)

    def forget(self) -> None:
        """Looks for the node again at the next call."""
        self._actor = None


class RayPeers(ReplayPeers):
    """How a node in an actor of Ray reaches the others; `Peers`."""

    def __init__(self, config: ProgramConfig, stop: StopEvent):
        """Takes the program, and the node's stop event."""
        super().__init__(config, stop, ahead=_AHEAD)

    def peer(self, name: str) -> RayPeer:
        """As `Peers.peer`."""
        return RayPeer(name, self._stop)
