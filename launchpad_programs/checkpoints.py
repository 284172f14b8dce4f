"""Reverb's checkpoints beside the snapshots: the files, so that both are of the same moment.

Reverb keeps its newest checkpoint alone. When a snapshot is saved, the checkpoint that belongs to
it is kept under the snapshot's number of steps (hard links: no bytes are copied), and a resumed
program's server begins with the one of the snapshot that the learner restores.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

_DONE = "DONE"  # Reverb's mark of a complete checkpoint; without it a server would begin empty


class Checkpoints:
    """The `reverb` folder of a run directory."""

    def __init__(self, directory: Path):
        """Args: the run directory."""
        self._folder = directory.absolute() / "reverb"
        self.live = self._folder / "live"

    def keep(self, steps: int) -> None:
        """Keeps the server's newest checkpoint for the snapshot at `steps`."""
        kept = self._folder / str(steps)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.live, kept, copy_function=os.link)

    def prune(self, steps: Iterable[int]) -> None:
        """Removes the checkpoints of all other snapshots."""
        wanted = {"live", *map(str, steps)}
        for path in self._folder.iterdir():
            if path.name not in wanted:
                shutil.rmtree(path)

    def prepare(self, steps: int | None) -> None:
        """Lays out what a server shall begin with.

        Args:
          steps: of the snapshot that the learner restores; None to begin empty.

        Raises:
          ValueError: the snapshot's checkpoint is not there, or not complete.
        """
        shutil.rmtree(self.live, ignore_errors=True)
        if steps is None:
            return
        kept = self._folder / str(steps)
        if not list(kept.glob(f"*/{_DONE}")):
            raise ValueError(
                f"The snapshot at {steps} steps needs the Reverb checkpoint {kept}, which is "
                "missing or incomplete: the replay would be empty."
            )
        shutil.copytree(kept, self.live, copy_function=os.link)
