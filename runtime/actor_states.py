"""Actor states of a program, each in a file of its own beside the learner's snapshots.

An actor writes its state from time to time and at its end; a resumed actor restores it: its random
numbers, and what an agent has learned within its actors, such as a bandit's counts. The moment is
the actor's own, so it may be shortly before or after that of the snapshot.
"""

from pathlib import Path
from typing import Any

from .state_file import load_state, save_state


class ActorStates:
    """The file of one actor in the `actors` folder of a run directory.

    Attributes:
      path: of the file.
    """

    def __init__(self, directory: Path, index: int):
        """Takes the run directory, and the number of the actor."""
        self.path = directory / "actors" / f"{index}.npz"

    def save(self, state: Any) -> None:
        """Writes a state, whole or not at all."""
        save_state(self.path, state)

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
