"""What an engine is to the launcher."""

import abc
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..config import ProgramConfig


class RunningNode(abc.ABC):
    """A node that was started; `name` is LABEL/INDEX."""

    name: str

    @property
    def pid(self) -> int | None:
        """Its process; None as long as it is unknown, or where it has none of its own."""
        return None

    @abc.abstractmethod
    def ended(self) -> str:
        """How it ended: "done" if without an error, "" while it runs."""

    def revive(self) -> bool:
        """Starts a node again that has ended too early, if the engine does; whether it did."""
        return False

    @abc.abstractmethod
    def stop(self) -> None:
        """Requests its end."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Ends it."""

    @abc.abstractmethod
    def traceback(self) -> str:
        """Of its error, or the end of its output."""


# Starts every node of a program. What processes print goes to `logs/LABEL/INDEX` of the run.
Engine: TypeAlias = Callable[[ProgramConfig], Sequence[RunningNode]]
