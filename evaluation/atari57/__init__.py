"""Agents on 57 Atari games: published scores, and the statistics that papers report.

`load_scores` returns published scores as arrays, and `read_scores` a user's scores. `make_table`
computes the statistics of each algorithm (median, mean rank, Elo ...), together with the papers'
values. `plot_scores` plots a table. The statistics (`human_normalised`, `mean_rank`, `elo` ...) are
functions of plain arrays.
"""

from .charts import plot_scores
from .games import GAMES, ale_id, game_slug
from .scores import (
    REGIMES,
    Headline,
    Source,
    load_headlines,
    load_scores,
    load_sources,
    read_scores,
)
from .statistics import Summary, count_wins, elo, human_normalised, mean_rank, summarise
from .table import Entry, Table, make_table

__all__ = [
    "GAMES",
    "REGIMES",
    "Entry",
    "Headline",
    "Source",
    "Summary",
    "Table",
    "ale_id",
    "count_wins",
    "elo",
    "game_slug",
    "human_normalised",
    "load_headlines",
    "load_scores",
    "load_sources",
    "make_table",
    "mean_rank",
    "plot_scores",
    "read_scores",
    "summarise",
]
