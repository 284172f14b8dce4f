"""A chart of scores: profiles of all algorithms, and one algorithm game by game."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..plots import check_png, new_figure, save_png
from .scores import GAMES
from .table import Entry, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TICKS = (-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_REGIMES = {"noop": "no-op starts", "human_start": "human starts"}


def plot_scores(table: Table, output: Path) -> "Figure":
    """Plots profiles of all algorithms, and the games of one of them; returns the figure.

    Left, for each algorithm: the fraction of the 57 games with at least a given human-normalised
    score; a curve crosses one half at the median. Right: the sorted games of one algorithm, the
    user's first one, or the one with the best median; a mark is the best score of the others.

    Raises:
      ValueError: `output` does not end in `.png`, or random and human are the only algorithms.
    """
    check_png(output)
    shown = [entry for entry in table.entries if entry.algorithm not in ("random", "human")]
    if not shown:
        raise ValueError("There is nothing to draw: give algorithms other than random and human.")
    figure = new_figure(14.0, 10.5)
    profiles, games = figure.subplots(1, 2, width_ratios=(1.0, 1.05))
    _draw_profiles(profiles, shown)
    own = [entry for entry in shown if entry.own]
    best = max(shown, key=lambda entry: entry.summary.median)
    _draw_games(games, own[0] if own else best, shown)
    figure.suptitle(f"57 Atari games, {_REGIMES[table.regime]}", fontsize=15)
    save_png(figure, output)
    return figure


def _draw_profiles(panel: "Axes", shown: list[Entry]) -> None:
    """Step curves; the legend is sorted by median."""
    for number, entry in enumerate(sorted(shown, key=lambda entry: -entry.summary.median)):
        panel.ecdf(
            entry.normalised,
            complementary=True,
            color=f"C{number % 10}",
            linestyle=("-", "--", ":")[number // 10 % 3],
            linewidth=3.5 if entry.own else 1.5,
            zorder=3 if entry.own else 2,
            label=f"{entry.algorithm}  {entry.summary.median:.2f}",
        )
    panel.axhline(0.5, color="grey", linewidth=0.8)
    _scale(panel, max(float(np.max(entry.normalised)) for entry in shown))
    panel.set(ylim=(0.0, 1.0), ylabel="part of the games with at least this score")
    panel.set_title("Profiles: higher is better")
    panel.legend(title="median", loc="upper right", frameon=True)


def _draw_games(panel: "Axes", focus: Entry, shown: list[Entry]) -> None:
    """One bar for each game, best at the top; blue above the human score, orange below."""
    order = np.argsort(focus.normalised, kind="stable")
    scores = focus.normalised[order]
    colours = np.where(scores > 1.0, "C0", "C1")
    panel.barh(np.arange(len(scores)), scores, color=colours, height=0.75)
    others = [entry.normalised[order] for entry in shown if entry is not focus]
    if others:
        best = np.max(others, axis=0)
        label = "best of the others"
        panel.plot(best, np.arange(len(best)), "k|", markersize=8, mew=1.8, label=label)
        panel.legend(loc="lower right")
    panel.set_yticks(np.arange(len(scores)), [GAMES[game] for game in order], fontsize=8)
    panel.set_ylim(-0.7, len(scores) - 0.3)
    _scale(panel, max(float(np.max(entry.normalised)) for entry in shown), below=min(scores))
    above = focus.summary.games_above_human
    panel.set_title(f"{focus.algorithm}: above the human in {above} of {len(scores)} games")


def _scale(panel: "Axes", highest: float, below: float = 0.0) -> None:
    """An axis of scores that is linear up to the human's, and logarithmic above it."""
    panel.set_xscale("symlog", linthresh=1.0, linscale=0.7)
    low, high = max(-1.0, min(-0.05, below * 1.1)), max(1.0, highest) * 1.1
    panel.set_xlim(low, high)
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()
    panel.axvline(1.0, color="black", linewidth=1.0, linestyle="--")
    panel.set_xlabel("human-normalised score (0 random, 1 human)")
    panel.grid(axis="x", alpha=0.3)
