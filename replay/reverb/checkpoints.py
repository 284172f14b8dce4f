"""Reverb's checkpoints beside the snapshots, consistent with them.

Reverb keeps its newest checkpoint only. When a snapshot is saved, its checkpoint is kept under the
snapshot's number of steps (hard links: no bytes are copied), and the server of a resumed program
starts with the checkpoint of the snapshot that the learner restores.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...basics.checksums import MANIFEST, check_manifest, write_manifest
from .layout import check_signature

_DONE = "DONE"  # Reverb's mark of a complete checkpoint; without it a server would start empty
_OPTIONS = ("max_size", "max_times_sampled", "sampler_options", "remover_options")
_LIMITS = ("samples_per_insert", "min_diff", "max_diff", "min_size_to_sample")


class Checkpoints:
    """The `reverb` folder of a run directory.

    Attributes:
      live: the folder that the server writes its checkpoints to.
    """

    def __init__(self, directory: Path):
        """Takes the run directory; writes nothing."""
        self._folder = directory.absolute() / "reverb"
        self.live = self._folder / "live"

    @property
    def is_live(self) -> bool:
        """Whether the live folder has a checkpoint, with which a server would start."""
        return _is_complete(self.live)

    def keep(self, steps: int) -> None:
        """Keeps the server's newest checkpoint for the snapshot at `steps`."""
        kept = self._folder / str(steps)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.live, kept, copy_function=os.link)
        write_manifest(kept)

    def check(self, steps: int) -> None:
        """Compares the checkpoint of the snapshot at `steps` with its checksums.

        Raises:
          ValueError: names a file that is missing or damaged, without a full stop.
        """
        check_manifest(self._folder / str(steps))

    def prune(self, steps: Iterable[int]) -> None:
        """Removes the checkpoints of all snapshots but those at `steps`."""
        wanted = {"live", *map(str, steps)}
        for path in self._folder.iterdir():
            if path.name not in wanted:
                shutil.rmtree(path)

    def prepare(self, steps: int | None) -> None:
        """Prepares the live folder for the start of a server.

        Args:
          steps: of the snapshot that the learner restores; None to start empty.

        Raises:
          ValueError: the snapshot's checkpoint is missing or incomplete.
        """
        shutil.rmtree(self.live, ignore_errors=True)
        if steps is None:
            return
        kept = self._folder / str(steps)
        if not _is_complete(kept):
            raise ValueError(
                f"The snapshot at {steps} steps needs the Reverb checkpoint {kept}, which is "
                "missing or incomplete: the replay would be empty."
            )
        names = shutil.ignore_patterns(MANIFEST)
        shutil.copytree(kept, self.live, copy_function=os.link, ignore=names)


def _is_complete(folder: Path) -> bool:
    return any(folder.glob(f"*/{_DONE}"))


def check_tables(wanted: Mapping[str, Any], served: Mapping[str, Any]) -> None:
    """Refuses a checkpoint of other tables: its options would silently replace the config's.

    Args:
      wanted: `TableInfo` of each table, before it was given to a server.
      served: the same, as reported by the server.

    Raises:
      ValueError: names the first table, and its layout or option, that differ.
    """
    if set(wanted) != set(served):
        raise ValueError(
            f"The Reverb checkpoint holds the tables {sorted(served)}, but the config asks for "
            f"{sorted(wanted)}."
        )
    for name, info in wanted.items():
        check_signature(name, served[name].signature, info.signature)
        for option, before, now in _options(info, served[name]):
            if before != now:
                raise ValueError(
                    f"The Reverb checkpoint's table {name} has {option} {now}, but the config asks "
                    f"for {before}: resume with the config of the original run."
                )


def _options(*infos: Any) -> Iterator[tuple[str, Any, Any]]:
    def readable(option: Any) -> Any:
        return option if isinstance(option, int) else " ".join(str(option).split())

    for name in _OPTIONS:
        yield name, *(readable(getattr(info, name)) for info in infos)
    for name in _LIMITS:
        yield name, *(getattr(info.rate_limiter_info, name) for info in infos)
