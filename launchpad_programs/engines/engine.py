"""What an engine is to the launcher."""

from collections.abc import Sequence
from typing import Protocol

from ..config import ProgramConfig


class RunningNode(Protocol):
    """A node that was started.

    Attributes:
      name: LABEL/INDEX.
    """

    name: str

    @property
    def pid(self) -> int | None:
        """Its process; None as long as it is unknown, or where it has none of its own."""
        ...

    def ended(self) -> str:
        """How it ended: "done" if without an error, "" while it runs."""
        ...

    def revive(self) -> bool:
        """Starts a node again that has ended too early; whether it did."""
        ...

    def stop(self) -> None:
        """Requests its end."""
        ...

    def kill(self) -> None:
        """Ends it."""
        ...

    def traceback(self) -> str:
        """Of its error, or the end of its output."""
        ...


class Engine(Protocol):
    """Starts the nodes of a program."""

    def start(self, config: ProgramConfig) -> Sequence[RunningNode]:
        """Starts every node; what processes print goes to `logs/LABEL/INDEX` of the run."""
        ...
