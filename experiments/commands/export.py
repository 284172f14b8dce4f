"""`retrax export`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from ..exporting import PLATFORMS, Platform, export
from ..parsing import parse


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportArguments:
    """Write the trained agent of a run as plain files that act without retrax."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run directory."""

    output: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The directory to write, which is empty or does not exist: act.py, agent.json, config.json,
    parameters.npz, and the functions as StableHLO."""

    snapshot: Annotated[str, tyro.conf.arg(metavar="newest|best|STEPS")] = "newest"
    """Which one; see retrax evaluate."""

    platforms: tuple[Platform, ...] = PLATFORMS
    """Where the functions can run."""


def export_command(arguments: Sequence[str]) -> int:
    """Exports a run and prints the directory."""
    given = parse(ExportArguments, arguments, prog="retrax export")
    print(export(given.run, given.output, snapshot=given.snapshot, platforms=given.platforms))
    return 0
