"""Agents on 57 Atari games: published scores, and the statistics that papers report.

`load_scores` has the published scores, `read_scores` a user's. `make_table` computes the statistics
of each algorithm (median, mean rank, Elo ...) beside the papers' values, `plot_scores` plots them.
"""

from .charts import *
from .scores import *
from .table import *

__all__ = [
    "GAMES",
    "REGIMES",
    "Entry",
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
