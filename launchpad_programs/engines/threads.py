"""Threads of this process: `--launch local_mt`, for debuggers. Nothing listens, nothing is sent."""

import os
import sys
import threading
import traceback

from ...replay.interface import DirectPeer
from ..config import ProgramConfig
from ..kinds import nodes_of
from ..node import Node, Peers, make_node
from .engine import RunningNode


def start_threads(config: ProgramConfig) -> "list[ThreadNode]":
    """Makes all nodes of a program, then starts them in threads, which print to the terminal."""
    made: dict[str, Node] = {}
    stops: dict[str, threading.Event] = {}
    for spec in nodes_of(config):
        stop = stops[spec.name] = threading.Event()
        peers = Peers(config, stop, lambda name: DirectPeer(made[name]))
        made[spec.name] = make_node(spec, config, peers)
    return [ThreadNode(name, node, stops[name]) for name, node in made.items()]


class ThreadNode(RunningNode):
    """A node in a thread of this process."""

    def __init__(self, name: str, node: Node, stop: threading.Event):
        self.name, self._node, self._stop = name, node, stop
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ended(self) -> str:
        """As `RunningNode.ended`."""
        if self._thread.is_alive():
            return ""
        return f"failed with {type(self._error).__name__}" if self._error else "done"

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

    def _run(self) -> None:
        try:
            self._node.run()
        except BaseException as error:
            self._error = error
