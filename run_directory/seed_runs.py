"""A directory of runs that differ in the seed alone: seed_0, seed_1, ..., each a run directory."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from ..runtime.run_config import RunConfig
from .config_file import write_config
from .directory_lock import LOCK


def seed_runs(directory: Path) -> list[Path]:
    """The run directories of such a directory by seed; none if it is another one."""
    named = {path.parent.name.removeprefix("seed_"): path.parent for path in _configs(directory)}
    return [named[seed] for seed in sorted(filter(str.isdecimal, named), key=int)]


def new_seed_runs(directory: Path, config: RunConfig, count: int) -> dict[Path, RunConfig]:
    """The run directories of new runs, which are not made yet, and their runs.

    Args:
      directory: of them all.
      config: the resolved run of the first seed.
      count: seeds, one after the other.

    Raises:
      ValueError: the directory is a file, or holds something; or a seed is too large.
    """
    configs = [dataclasses.replace(config, seed=config.seed + index) for index in range(count)]
    if seed_runs(directory):
        raise ValueError(f"{directory} holds runs already: retrax train --resume {directory}")
    if directory.exists() and (not directory.is_dir() or set(os.listdir(directory)) - {LOCK}):
        raise ValueError(f"{directory} must be a new directory or an empty one.")
    return {directory / f"seed_{each.seed}": each for each in configs}


def write_seed_runs(runs: Mapping[Path, RunConfig]) -> None:
    """Makes the run directories of new runs, each with its config.json."""
    for run, config in runs.items():
        run.mkdir(parents=True)
        write_config(run, config)


def _configs(directory: Path) -> list[Path]:
    return list(directory.glob("seed_*/config.json"))
