"""Actor states of a program, each in a file of its own beside the learner's snapshots.

An actor gives its state to the counter from time to time and at its end, which writes it; a resumed
actor asks for it: its random numbers, and what an agent has learned within its actors, such as a
bandit's counts. The moment is the actor's own, so it may be shortly before or after that of the
snapshot.
"""

from pathlib import Path
from typing import Any

from ..basics.checksums import read_sealed
from .state_file import load_state, write_state


class ActorStates:
    """The file of one actor in the `actors` folder of a run directory.

    Attributes:
      path: of the file.
    """

    def __init__(self, directory: Path, index: int):
        """Takes the run directory, and the number of the actor."""
        self.path = directory / "actors" / f"{index}.npz"

    def write(self, data: bytes) -> None:
        """Writes a packed state (`pack_state`), whole or not at all."""
        write_state(self.path, data)

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
        try:
            return load_state(self.path, template)
        except ValueError as error:
            raise ValueError(
                f"The actor state {error}: remove the file to start with a new state."
            ) from error
