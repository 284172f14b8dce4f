"""`retrax train --seeds N`: each run is a process of its own, or all are together on a device."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from ...basics.validation import Range
from ...run_directory.config_file import read_config, write_config
from ...run_directory.directory_lock import DirectoryLock
from ...run_directory.seed_runs import seed_runs
from ...runtime.run_config import RunConfig
from ...runtime.stop import stop_on_signals
from ..failing import RunFailedError
from ..grid import Cell, run_grid
from ..grid_screen import grid_screen
from ..parsing import tell
from ..training import train_together


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedOptions:
    """Runs that differ in the seed alone."""

    seeds: Annotated[int, Range(1)] = 1
    """Runs with the seeds from --seed on, each in a directory of its own, and in a process of its
    own; with --on-device, they are computed together."""

    jobs: Annotated[int, Range(1)] = 1
    """Runs of several seeds at a time."""


def train_seeds(config: RunConfig, directory: Path, options: SeedOptions, *, plain: bool) -> int:
    """Trains those runs of a directory that are not finished, and prints what to do next.

    Ctrl-C ends all of them with snapshots.

    Args:
      config: of all runs but for the seed; replaces theirs.
      directory: of the runs.
      options: how many at a time.
      plain: lines instead of a live table.

    Returns:
      The exit status: 1 if a run failed, else 0.
    """
    with DirectoryLock(directory) as lock:
        lock.acquire()
        cells = []
        for run in seed_runs(directory):
            one = dataclasses.replace(config, seed=read_config(run).seed)
            write_config(run, one)
            cells.append(Cell(None, one, run, episodes=0))
        if config.on_device:
            left = [cell for cell in cells if cell.score is None] or cells
            runs = {cell.directory: cell.config for cell in left}
            return train_seeds_together(runs, directory, resume=True, plain=plain)
        with stop_on_signals() as stop, grid_screen(cells, plain=plain) as show:
            logs = directory / "logs"
            end = run_grid(cells, jobs=options.jobs, logs=logs, stop=stop, show=show)
    for name in end.failed:
        tell(f"{name} failed: {end.states[name]} (all of it: {logs / name}.txt)")
    return _finish(directory, is_stopped=stop.is_set(), has_failed=bool(end.failed))


def train_seeds_together(
    runs: Mapping[Path, RunConfig], directory: Path, *, resume: bool, plain: bool
) -> int:
    """`train_seeds` of runs on a device; see `train_together`."""
    try:
        _, is_stopped = train_together(runs, resume=resume, plain=plain)
    except RunFailedError as failure:
        tell(f"retrax: {failure}")
        return _finish(directory, is_stopped=False, has_failed=True)
    return _finish(directory, is_stopped=is_stopped, has_failed=False)


def _finish(directory: Path, *, is_stopped: bool, has_failed: bool) -> int:
    if is_stopped:
        tell(f"Stopped by you. To continue: retrax train --resume {directory}")
    print(f"Runs in {directory}. Next: retrax plot {directory}")
    return int(has_failed)
