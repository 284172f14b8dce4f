"""bsuite.csv: bsuite's scores of the agents of a benchmark, and the data of its radar plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..environments.bsuite_tasks import PREFIX
from ..evaluation import bsuite
from ..run_directory.resuming import read_continuation
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
    states = read_continuation(Snapshots(run, writable=False)).environment_states()
    return states[0]["records"][0] if states else []
