"""`retrax atari57`: statistics of published scores and of the user's."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from rich import box, table
from rich.console import Console

from ..evaluation import atari57
from .parsing import parse

_WIDTH = 120  # columns, if the output is not a terminal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Atari57Arguments:
    """Compare algorithms on 57 Atari games: published scores, and yours."""

    regime: Literal["noop", "human_start"] = "noop"
    """How episodes begin: after up to 30 no-ops, or in a state that a human player reached."""

    algorithms: tuple[str, ...] | None = None
    """Published algorithms to compare with; default: those of Reactor's table. Random and human are
    always included."""

    scores: Path | None = None
    """A CSV file with your scores: columns game and score, and optionally algorithm, regime and
    seed."""

    output: Path | None = None
    """Write a chart to this PNG file."""


def atari57_command(arguments: Sequence[str]) -> int:
    """Prints the table and writes the chart."""
    given = parse(Atari57Arguments, arguments, prog="retrax atari57")
    own = atari57.read_scores(given.scores, given.regime) if given.scores else {}
    compared = atari57.make_table(given.regime, given.algorithms, own)
    if given.output:
        atari57.plot_scores(compared, given.output)
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(_grid(compared))
    console.print(_notes(compared), highlight=False, soft_wrap=True)
    if given.output:
        print(given.output)
    return 0


def _grid(compared: atari57.Table) -> table.Table:
    grid = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("algorithm", no_wrap=True)
    names = ["median", "paper", "mean", "capped", "5 %", "IQM", "> human", "rank", "paper"]
    for name in [*names, "Elo", "paper"]:
        grid.add_column(name, justify="right", style="dim" if name == "paper" else "")
    for entry in compared.entries:
        grid.add_row(*_cells(entry), style="bold" if entry.own else "")
    return grid


def _cells(entry: atari57.Entry) -> list[str]:
    summary, digits = entry.summary, {"elo": 0}
    printed = {name: f"{x:.{digits.get(name, 2)}f}" for name, x in entry.printed.items()}
    return [
        entry.algorithm,
        f"{summary.median:.2f}",
        printed.get("median", ""),
        f"{summary.mean:.2f}",
        f"{summary.capped_mean:.2f}",
        f"{summary.percentile_5:.2f}",
        f"{entry.iqm.mean:.2f}",
        f"{summary.games_above_human}",
        f"{entry.mean_rank:.2f}",
        printed.get("mean_rank", ""),
        f"{entry.elo:.0f}",
        printed.get("elo", ""),
    ]


def _notes(compared: atari57.Table) -> str:
    """Definitions and intervals, printed below the table."""
    notes = ["Scores are human-normalised: 0 random, 1 human. IQM: interquartile mean."]
    for entry in compared.entries:
        if not np.isnan(entry.iqm.low):
            low, high = f"{entry.iqm.low:.2f}", f"{entry.iqm.high:.2f}"
            notes.append(
                f"{entry.algorithm}: IQM {entry.iqm.mean:.2f} (95 %: {low} to {high}, stratified "
                f"bootstrap over {entry.seeds} seeds); other statistics are of mean scores."
            )
    if not compared.as_printed:
        notes.append(
            "Rank and Elo depend on the compared algorithms; the papers' are of their own tables."
        )
    return "\n".join(notes)
