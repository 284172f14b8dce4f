"""Agents on 57 Atari games: published scores, and the statistics that papers report.

`load_scores` has the published scores, `read_scores` a user's. `make_table` computes the statistics
of each algorithm (median, mean rank, Elo ...) beside the papers' values, `plot_scores` plots them.
"""

from .charts import plot_scores
from .scores import (
    GAMES,
    REGIMES,
    Headline,
    ale_id,
    game_slug,
    load_headlines,
    load_scores,
    read_scores,
)
from .statistics import Summary, count_wins, elo, human_normalised, mean_rank, summarise
from .table import Entry, Table, make_table

__all__ = [
    "GAMES",
    "REGIMES",
    "Entry",
    "Headline",
    "Summary",
    "Table",
    "ale_id",
    "count_wins",
    "elo",
    "game_slug",
    "human_normalised",
    "load_headlines",
    "load_scores",
    "make_table",
    "mean_rank",
    "plot_scores",
    "read_scores",
    "summarise",
]
