"""`retrax report`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from ...evaluation.report import write_report
from ..parsing import parse


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportArguments:
    """Show the results of a benchmark in one HTML page, beside published scores."""

    directory: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """The directory of `retrax benchmark`."""

    output: Path | None = None
    """The HTML file to write; by default report.html in the directory."""


def report_command(arguments: Sequence[str]) -> int:
    """Writes the page."""
    given = parse(ReportArguments, arguments, prog="retrax report")
    output = given.output or given.directory / "report.html"
    write_report(given.directory, output)
    print(output)
    return 0
