"""Threads of this process: `--launch local_mt`, for debuggers. Nothing listens, nothing is sent."""

import concurrent.futures
import os
import sys
import threading
import traceback
from typing import Any

from ...replay.peer import Answer, DirectPeer
from ...replay.waiting import Stopped
from ...runtime.stop import StopEvent
from ..config import ProgramConfig
from ..kinds import NodeSpec, make_node, nodes_of
from .replay_peers import ReplayPeers

_POLL_SECONDS = 0.1
_Made = dict[str, "concurrent.futures.Future[Any]"]  # the nodes, by their names


class ThreadEngine:
    """Starts the nodes of a program as threads; an `Engine`."""

    def start(self, config: ProgramConfig) -> "list[ThreadNode]":
        """As of `Engine`; the threads print where this process does."""
        specs = nodes_of(config)
        made: _Made = {spec.name: concurrent.futures.Future() for spec in specs}
        return [ThreadNode(spec, config, made) for spec in specs]


class ThreadNode:
    """A node in a thread of this process; a `RunningNode`."""

    pid = None

    def __init__(self, spec: NodeSpec, config: ProgramConfig, made: _Made):
        """Starts the thread, which makes the node and runs it.

        Args:
          spec: of the node.
          config: of the program.
          made: where the nodes of the program are found when they are made.
        """
        self.name, self._stop = spec.name, threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(spec, config, made), name=self.name, daemon=True
        )
        self._thread.start()

    def ended(self) -> str:
        """As of `RunningNode`."""
        if self._thread.is_alive():
            return ""
        return f"failed with {type(self._error).__name__}" if self._error else "done"

    def revive(self) -> bool:
        """Never: what a thread has left behind is unknown."""
        return False

    def stop(self) -> None:
        """Sets its stop event."""
        self._stop.set()

    def kill(self) -> None:
        """Ends this process: a thread cannot be ended."""
        sys.stderr.write(f"retrax: the thread of {self.name} does not end; ending the process.\n")
        sys.stderr.flush()
        os._exit(1)

    def traceback(self) -> str:
        """Of the node's error."""
        return "".join(traceback.format_exception(self._error)) if self._error else ""

    def _run(self, spec: NodeSpec, config: ProgramConfig, made: _Made) -> None:
        try:
            node = make_node(spec, config, ThreadPeers(config, made, self._stop), stop=self._stop)
            made[spec.name].set_result(node)
            node.run()
        except Stopped:
            pass  # before it was made
        except BaseException as error:
            self._error = error


class ThreadPeers(ReplayPeers):
    """`Peers` whose methods are called in the caller's thread."""

    def __init__(self, config: ProgramConfig, made: _Made, stop: StopEvent):
        """Takes the program, its nodes, and the stop event of the node that calls them."""
        super().__init__(config, stop, ahead=0)
        self._made = made

    def peer(self, name: str) -> "ThreadPeer":
        """As of `Peers`."""
        return ThreadPeer(self._made[name], self._stop)

    once = peer


class ThreadPeer:
    """A `Peer` in this process, as soon as it is made."""

    def __init__(self, made: "concurrent.futures.Future[Any]", stop: StopEvent):
        """Takes where the node will be found, and the caller's stop event."""
        self._made, self._stop = made, stop

    def call(self, method: str, *arguments: Any) -> Any:
        """As of `Peer`."""
        return self._direct().call(method, *arguments)

    def send(self, method: str, *arguments: Any) -> Answer:
        """As of `Peer`."""
        return self._direct().send(method, *arguments)

    def _direct(self) -> DirectPeer:
        while True:
            try:
                return DirectPeer(self._made.result(_POLL_SECONDS))
            except concurrent.futures.TimeoutError:
                if self._stop.is_set():
                    raise Stopped("The program ended before the node was made.") from None
