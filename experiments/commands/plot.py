"""`retrax plot`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from ...evaluation import plot_learning_curves
from ..parsing import parse


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotArguments:
    """Draw learning curves: runs that differ in the seed alone share a colour.

    Three of them or more have a band, the 95 % interval of their mean.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN...")]
    """Run directories."""

    output: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("curves.png")
    """The PNG file to write."""

    metric: Annotated[str, tyro.conf.arg(metavar="NAME")] = "episode_return"
    """A column of metrics.csv."""

    window: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Moving average over N rows; the picture says so."""


def plot_command(arguments: Sequence[str]) -> int:
    """Plots runs."""
    given = parse(PlotArguments, arguments, prog="retrax plot")
    plot_learning_curves(given.runs, given.output, metric=given.metric, window=given.window)
    print(given.output)
    return 0
