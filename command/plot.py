"""`retrax plot`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from ..basics.validation import Range
from ..evaluation import plot_learning_curves
from ..evaluation.drawing import check_png
from ..evaluation.plots import plot_arms
from .parsing import parse_call
from .trained import evaluate_arms


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Arms:
    arms: bool = False
    """Instead, evaluate each policy of an agent that has a family of them (Agent57), and draw
    return (with its 95 % interval), intrinsic return and length over the numbers of the arms, in
    arms.png."""

    episodes: Annotated[int, Range(1)] = 20
    """Episodes of each arm."""


def plot_command(arguments: Sequence[str]) -> int:
    """Plots runs."""
    given = parse_call(
        plot_learning_curves,
        arguments,
        prog="retrax plot",
        base=_Arms,
        runs=Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN...")],
        output=Path | None,
    )
    has_arms, episodes = given.pop("arms"), given.pop("episodes")
    output = given.pop("output") or Path("arms.png" if has_arms else "curves.png")
    if has_arms:
        _plot_arms(given["runs"], output, episodes)
    else:
        plot_learning_curves(output=output, **given)
    print(output)
    return 0


def _plot_arms(runs: Sequence[Path], output: Path, episodes: int) -> None:
    if len(runs) != 1:
        raise ValueError(f"--arms draws one run, got {len(runs)}.")
    check_png(output)  # before the evaluations, which take long
    place = output.absolute()  # the environment may change the working directory
    found = evaluate_arms(runs[0], episodes=episodes)
    title = f"{runs[0]}, {found[0].steps} steps: means of {episodes} episodes of each arm"
    plot_arms(found, place, title=title)
