"""`retrax train --seeds N`: each run is a process of its own."""

import dataclasses
from pathlib import Path
from typing import Annotated

from ...basics.validation import Range
from ...run_directory.config_file import read_config, write_config
from ...run_directory.directory_lock import DirectoryLock
from ...run_directory.seed_runs import seed_runs
from ...runtime.run_config import RunConfig
from ...runtime.stop import stop_on_signals
from ..grid import Cell, run_grid
from ..grid_screen import grid_screen
from ..parsing import tell


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedOptions:
    """Runs that differ in the seed alone."""

    seeds: Annotated[int, Range(1)] = 1
    """Runs with the seeds from --seed on, each in a process and a directory of its own."""

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
        with stop_on_signals() as stop, grid_screen(cells, plain=plain) as show:
            logs = directory / "logs"
            end = run_grid(cells, jobs=options.jobs, logs=logs, stop=stop, show=show)
    for name in end.failed:
        tell(f"{name} failed: {end.states[name]} (all of it: {logs / name}.txt)")
    if stop.is_set():
        tell(f"Stopped by you. To continue: retrax train --resume {directory}")
    print(f"Runs in {directory}. Next: retrax plot {directory}")
    return int(bool(end.failed))
