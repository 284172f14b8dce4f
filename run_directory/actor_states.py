"""Actor states of a program, each in a file of its own beside the learner's snapshots.

An actor gives its state to the counter from time to time and at its end, which writes it; a resumed
actor asks for it: its random numbers, and what an agent has learned within its actors, such as a
bandit's counts. The moment is the actor's own, so it may be shortly before or after that of the
snapshot.
"""

import io
from pathlib import Path
from typing import Any

from ..basics.checksums import read_sealed
from .state_file import SUFFIX, pack_state, read_kept, read_state, sealed

_PART = "actor"


def pack_actor(state: Any) -> bytes:
    """An actor's state as bytes."""
    file = io.BytesIO()
    pack_state(file, {_PART: state})
    return file.getvalue()


def unpack_actor(data: bytes, template: Any) -> Any:
    """The inverse of `pack_actor`.

    Raises:
      ValueError: the state is not like the template.
    """
    try:
        return read_state(io.BytesIO(data), {_PART: template})[_PART]
    except ValueError as error:
        raise ValueError(f"The actor's state is of another agent or config ({error}).") from error


class ActorStates:
    """The file of one actor in the `actors` folder of a run directory.

    Attributes:
      path: of the file.
    """

    def __init__(self, directory: Path, index: int):
        """Takes the run directory, and the number of the actor."""
        self.path = directory / "actors" / f"{index}{SUFFIX}"

    def write(self, data: bytes) -> None:
        """Writes a packed state, whole or not at all."""
        with sealed(self.path) as file:
            file.write(data)

    def read(self) -> bytes | None:
        """The packed state; None if there is none.

        Raises:
          ValueError: the file is damaged.
        """
        return read_sealed(self.path) if self.path.is_file() else None

    def restore(self, template: Any) -> Any:
        """The saved state; the template itself if there is none.

        Args:
          template: a state like it.

        Raises:
          ValueError: the file is damaged, or of another agent.
        """
        if not self.path.is_file():
            return template
        return read_kept("The actor state", self.path, {_PART: template})[_PART]
