"""Threads of this process: `--engine threads`, for debuggers. Nothing listens, nothing is sent."""

import os
import sys
import threading
import traceback

from ...replay.interface import REAL, DirectPeer
from ..config import ProgramConfig
from ..kinds import nodes_of
from ..node import Node, RunningNode, make_node, make_peers


def start_threads(config: ProgramConfig) -> list[RunningNode]:
    """Makes all nodes of a program, then starts them in threads, which print to the terminal."""
    made: dict[str, tuple[Node, threading.Event]] = {}
    for name in nodes_of(config):
        stop = threading.Event()
        peers = make_peers(config, stop, lambda other: DirectPeer(made[other][0]), 0, REAL)
        made[name] = make_node(name, config, peers), stop
    return [_start(name, *parts) for name, parts in made.items()]


def _start(name: str, node: Node, stop: threading.Event) -> RunningNode:
    errors = list[BaseException]()

    def run() -> None:
        try:
            node.run()
        except BaseException as error:
            errors.append(error)

    def ended() -> str:
        if thread.is_alive():
            return ""
        return f"failed with {type(errors[0]).__name__}" if errors else "done"

    def kill() -> None:  # a thread cannot be ended
        sys.stderr.write(f"retrax: the thread of {name} does not end; ending the process.\n")
        sys.stderr.flush()
        os._exit(1)

    def text() -> str:
        return "".join(traceback.format_exception(errors[0])) if errors else ""

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return RunningNode(name, ended, stop.set, kill, text)
