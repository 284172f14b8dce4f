"""Where a run continues: at its newest whole snapshot, or at its beginning."""

from collections.abc import Callable
from pathlib import Path

from .._checksums import read_sealed
from .best_parameters import BEST
from .numbered_folders import NumberedFolders
from .snapshots import Snapshots


def open_snapshots(
    directory: Path, last_step: int | None = None, *, also: Callable[[int], None] | None = None
) -> tuple[Snapshots | None, list[str]]:
    """The snapshots of a run that is resumed.

    Args:
      directory: the run directory.
      last_step: of the run; None allows any.
      also: as of `Snapshots`.

    Returns:
      The snapshots, to be read from `newest_whole()`, and warnings: about newer ones that are
      damaged. None if the run was stopped before its first snapshot: it begins anew.

    Raises:
      ValueError: no snapshot is whole, or the newest is at the last step already.
    """
    if not NumberedFolders(directory / "snapshots").steps():
        has_begun = (directory / "metrics.csv").is_file()
        note = f"{directory} holds no snapshot yet: the run begins anew."
        return None, [note] if has_begun else []
    snapshots = Snapshots(directory, writable=False, also=also)
    try:
        steps, notes = snapshots.newest_whole(), snapshots.passed_over()
        if last_step is not None and steps >= last_step:
            raise ValueError(
                f"{directory} is at {steps} steps already: to continue, give more steps than that, "
                f"got {last_step}."
            )
    except ValueError:
        snapshots.close()
        raise
    return snapshots, notes


def check_states(directory: Path) -> None:
    """Refuses damaged states that a program's actors and evaluator keep beside the snapshots.

    Raises:
      ValueError: names the file.
    """
    for path in [*sorted((directory / "actors").glob("*.npz")), directory / BEST]:
        if path.is_file():
            try:
                read_sealed(path)
            except ValueError as error:
                raise ValueError(f"{error}: remove the file to start with a new state.") from None
