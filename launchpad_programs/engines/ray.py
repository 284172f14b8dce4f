"""Runs a program's nodes in actors of Ray, and starts them again when they die."""

from collections.abc import Sequence
from typing import Any

from ..config import ProgramConfig
from .engine import RunningNode


class RayEngine:
    """Starts the nodes of a program within a session of Ray; an `Engine`."""

    def __init__(self, session: Any, *, max_failures: int):
        """Takes a running session, and failures of a node in a row before the program ends."""
        raise NotImplementedError

    def start(self, config: ProgramConfig) -> Sequence[RunningNode]:
        """As of `Engine`."""
        raise NotImplementedError
