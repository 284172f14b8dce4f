"""`retrax plot`."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from ..basics.validation import Range
from ..evaluation import Interval, plot_learning_curves
from ..evaluation.drawing import check_png
from ..evaluation.plots import plot_arms
from .parsing import parse
from .trained import evaluate_arms

_INTRINSIC = "intrinsic_return"  # an episode metric of agents with intrinsic rewards


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotArguments:
    """Draw learning curves: runs that differ in the seed alone share a colour.

    Three of them or more have a band, the 95 % interval of their mean.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN...")]
    """Run directories, or directories of several seeds."""

    output: Path | None = None
    """The PNG file to write: curves.png, or arms.png, if it is not given."""

    metric: str = "episode_return"
    """A column of metrics.csv."""

    window: Annotated[int, Range(1)] = 1
    """Moving average over so many rows; the picture says so."""

    arms: bool = False
    """Instead, evaluate each policy of an agent that has a family of them (Agent57), and draw
    return (with its 95 % interval), intrinsic return and length over the numbers of the arms."""

    episodes: Annotated[int, Range(1)] = 20
    """Episodes of each arm."""


def plot_command(arguments: Sequence[str]) -> int:
    """Plots runs."""
    given = parse(PlotArguments, arguments, prog="retrax plot")
    output = given.output or Path("arms.png" if given.arms else "curves.png")
    if given.arms:
        _plot_arms(given.runs, output, given.episodes)
    else:
        plot_learning_curves(given.runs, output, metric=given.metric, window=given.window)
    print(output)
    return 0


def _plot_arms(runs: Sequence[Path], output: Path, episodes: int) -> None:
    if len(runs) != 1:
        raise ValueError(f"--arms draws one run, got {len(runs)}.")
    check_png(output)  # before the evaluations, which take long
    place = output.absolute()  # the environment may change the working directory
    found = evaluate_arms(runs[0], episodes=episodes)
    panels = {"return": [Interval(x.mean_return, x.low, x.high) for x in found]}
    means = {"length": [x.mean_length for x in found]}
    if all(_INTRINSIC in x.metrics for x in found):
        means = {"intrinsic return": [x.metrics[_INTRINSIC] for x in found], **means}
    for name, values in means.items():
        panels[name] = [Interval(mean, math.nan, math.nan) for mean in values]
    title = f"{runs[0]}, {found[0].steps} steps: means of {episodes} episodes of each arm"
    plot_arms(panels, place, title=title)
