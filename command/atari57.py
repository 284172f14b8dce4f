"""`retrax atari57`: statistics of published scores and of the user's."""

import math
from pathlib import Path
from typing import Literal

from rich import box, table
from rich.console import Console

from ..evaluation import atari57

# "paper" is what a paper printed for the column before.
_COLUMNS = ["median", "paper", "mean", "capped", "5 %", "IQM", "> human", "rank", "paper"]
_COLUMNS += ["Elo", "paper"]


def compare(
    *,
    regime: Literal["noop", "human_start"] = "noop",
    algorithms: tuple[str, ...] | None = None,
    scores: Path | None = None,
    output: Path | None = None,
) -> Path | None:
    """Compare algorithms on 57 Atari games: published scores, and yours.

    Args:
      regime: how episodes begin: after up to 30 no-ops, or in a state that a human player reached.
      algorithms: published algorithms to compare with; default: the ones in Reactor's table. Random
        and human are always included.
      scores: a CSV file with your scores: columns game and score, and optionally algorithm, regime
        and seed.
      output: write a chart to this PNG file.
    """
    own = atari57.read_scores(scores, regime) if scores else {}
    compared = atari57.make_table(regime, algorithms, own)
    if output:
        atari57.plot_scores(compared, output)
    console = Console()
    if not console.is_terminal:
        console.width = 120
    grid = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("algorithm", no_wrap=True)
    for name in _COLUMNS:
        grid.add_column(name, justify="right", style="dim" if name == "paper" else "")
    notes = ["Scores are human-normalised: 0 random, 1 human. IQM: interquartile mean."]
    for entry in compared.entries:
        found, paper = entry.summary, {name: f"{x:.2f}" for name, x in entry.printed.items()}
        numbers = found.mean, found.capped_mean, found.percentile_5, entry.iqm.mean
        cells = [entry.algorithm, f"{found.median:.2f}", paper.get("median", "")]
        cells += [*(f"{x:.2f}" for x in numbers), f"{found.games_above_human}"]
        cells += [f"{entry.mean_rank:.2f}", paper.get("mean_rank", ""), f"{entry.elo:.0f}"]
        cells.append(f"{entry.printed['elo']:.0f}" if "elo" in entry.printed else "")
        grid.add_row(*cells, style="bold" if entry.own else "")
        if not math.isnan(entry.iqm.low):
            mean, low, high = (f"{x:.2f}" for x in entry.iqm)
            how = f"(95 %: {low} to {high}, stratified bootstrap over {entry.seeds} seeds)"
            notes.append(f"{entry.algorithm}: IQM {mean} {how}; other statistics use mean scores.")
    if not compared.as_printed:
        notes.append("Rank and Elo depend on the algorithms compared; papers compare others.")
    console.print(grid)
    console.print("\n".join(notes), highlight=False, soft_wrap=True)
    return output
