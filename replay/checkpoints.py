"""Reverb's checkpoints beside the snapshots, consistent with them.

Reverb keeps its newest one only. With a snapshot, it is kept under the snapshot's number of steps
(hard links: no bytes are copied); the server of a resumed program starts with it.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from ..basics.files import MANIFEST, check_manifest, write_manifest

_DONE = "DONE"  # Reverb's mark of a complete checkpoint; without it a server would start empty


class Checkpoints:
    """The `reverb` folder of a run directory.

    Attributes:
      live: the folder that the server writes its checkpoints to.
    """

    def __init__(self, directory: Path):
        self._folder = directory.absolute() / "reverb"
        self.live = self._folder / "live"

    def keep(self, steps: int) -> None:
        """Keeps the server's newest checkpoint for the snapshot at `steps`."""
        kept = self._folder / str(steps)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.live, kept, copy_function=os.link)
        write_manifest(kept)

    def check(self, steps: int) -> None:
        """ValueError (without a full stop) if a file for the snapshot at `steps` is damaged."""
        check_manifest(self._folder / str(steps))

    def prune(self, steps: Iterable[int]) -> None:
        """Removes the checkpoints of all snapshots but those at `steps`."""
        wanted = {"live", *map(str, steps)}
        for path in self._folder.iterdir():
            if path.name not in wanted:
                shutil.rmtree(path)

    def prepare(self, steps: int | None) -> None:
        """Prepares the live folder for a server that starts with the snapshot at `steps`, or empty.

        ValueError if the snapshot's checkpoint is missing or incomplete.
        """
        shutil.rmtree(self.live, ignore_errors=True)
        if steps is None:
            return
        kept = self._folder / str(steps)
        if not any(kept.glob(f"*/{_DONE}")):
            raise ValueError(
                f"The snapshot at {steps} steps needs the Reverb checkpoint {kept}, which is "
                "missing or incomplete: the replay would be empty."
            )
        names = shutil.ignore_patterns(MANIFEST)
        shutil.copytree(kept, self.live, copy_function=os.link, ignore=names)
