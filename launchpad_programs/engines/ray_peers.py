"""Nodes that call each other through Ray, which carries rows, draws and parameters, too.

A node is in an actor of Ray with the node's name. The actor's process may die and another one take
its name: calls then find the new one, and are made again.
"""

import contextlib
import os
import threading
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import ray

from ...replay.interface import PeerLost
from ...training.stop import StopEvent
from ..kinds import kind_of, make_node
from ..peers import Peers, RemotePeer, Starting
from .ray_session import AHEAD

_MAKING_SECONDS = 1.0  # that a call waits for a node which is not made yet


class NoResult(NamedTuple):
    """The answer of a node whose method returned nothing.

    Attributes:
      traceback: of the method's error; "" where the node is not made yet.
    """

    traceback: str


class Host:
    """The process of one node, placed by Ray."""

    def __init__(self, home: str):
        self._is_home = ray.get_runtime_context().get_node_id() == home
        self._stop, self._made = threading.Event(), threading.Event()
        self._node: Any = None

    def where(self) -> tuple[str, int]:
        """The address of the machine, and the process."""
        return str(ray.util.get_node_ip_address()), os.getpid()

    def run(self, pickled: bytes, log: Path) -> str:
        """Runs a node to its end.

        Args:
          pickled: the node's spec and the program's config.
          log: gets its output, if this is the launcher's host.

        Returns:
          The traceback of its error, "" if there was none.
        """
        try:
            if self._is_home:
                _redirect_output(log)
            spec, config = cloudpickle.loads(pickled)
            _add_nice(spec.kind.nice)
            stop = self._stop
            peers = Peers(config, stop, lambda name: RayPeer(name, stop), ahead=AHEAD)
            self._node = make_node(spec, config, peers, stop=stop)
            self._made.set()
            self._node.run()
        except BaseException:  # sys.exit() too
            text = traceback.format_exc()
            print(text, flush=True)
            return text
        return ""

    @ray.method(concurrency_group="calls")
    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the node."""
        if not self._made.wait(_MAKING_SECONDS):
            return NoResult("")
        try:
            return getattr(self._node, method)(*arguments)
        except Exception:  # Ray's own tracebacks have colours
            return NoResult(traceback.format_exc())

    def stop(self) -> None:
        """Sets the node's stop event."""
        self._stop.set()


class RayAnswer:
    """The answer to a call of a node; a `replay.peer.Answer`."""

    def __init__(self, peer: "RayPeer", reference: Any):
        self._peer, self._reference = peer, reference

    def result(self, timeout: float) -> Any:
        """As `Answer.result`."""
        title = self._peer.title
        if self._reference is None:
            raise PeerLost(f"{title} is not there.")
        try:
            answer = ray.get(self._reference, timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            raise TimeoutError(f"{title} gave no answer for {timeout} s.") from None
        except ray.exceptions.RayError as error:
            self._peer.forget()
            raise PeerLost(f"{title} died before it answered.") from error
        if not isinstance(answer, NoResult):
            return answer
        if answer.traceback:
            raise RuntimeError(f"{title} refused a call: {answer.traceback}")
        raise Starting(f"{title} starts.")


class RayPeer(RemotePeer):
    """A node in an actor of Ray."""

    def __init__(self, name: str, stop: StopEvent):
        super().__init__(name, stop, ends_last=kind_of(name).ends_last)
        self._node = name
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

    def forget(self) -> None:
        """Looks for the node again at the next call."""
        self._actor = None


def _redirect_output(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _add_nice(nice: int) -> None:
    """Lowers the priority of this process, whose other threads Ray has started already."""
    if not os.path.isdir("/proc/self/task"):
        os.nice(nice)
        return
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it may end
            now = os.getpriority(os.PRIO_PROCESS, int(thread))
            os.setpriority(os.PRIO_PROCESS, int(thread), now + nice)
