"""bsuite.csv: bsuite's scores of the agents of a benchmark, and the data of its radar plot."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..environments.bsuite_tasks import PREFIX
from ..environments.plain_data import unpack
from ..evaluation import bsuite
from ..run_directory.resuming import read_unfinished
from ..run_directory.snapshots import Snapshots
from .grid import Cell
from .grid_tables import table


def write_bsuite(directory: Path, cells: Sequence[Cell]) -> None:
    """Writes bsuite.csv of the complete cells: a row for each agent, seed, and experiment or tag.

    Raises:
      ValueError: a snapshot is damaged.
    """
    records: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for cell in cells:
        if cell.score is not None and (rows := _record(cell.directory)):
            of_seed = records.setdefault((cell.config.agent, cell.config.seed), {})
            of_seed[cell.config.environment.removeprefix(PREFIX)] = rows
    with table(directory / bsuite.SCORES) as write:
        write("agent seed kind name score ids finished")
        for (agent, seed), found in sorted(records.items()):
            for score in bsuite.scores(found):
                write([agent, seed, *score])


def _record(run: Path) -> list[dict[str, Any]]:
    """What the environment of a run recorded up to the newest snapshot."""
    with contextlib.closing(Snapshots(run, writable=False)) as snapshots:
        running = read_unfinished(snapshots).running
    if running is None:  # the snapshot has no state of the environment
        return []
    rows: list[dict[str, Any]] = unpack(running)["actors"][0]["environment"]["records"][0]
    return rows
