"""Evaluation of agents: episodes, statistics, plots and videos.

`atari57` compares agents with published scores, `statistics` over the tasks and seeds of a suite.
"""

from .evaluations import *
from .plots import *
from .statistics import *
from .video import *

__all__ = [
    "EpisodeResults",
    "Evaluation",
    "Interval",
    "Scores",
    "VideoWriter",
    "interval_curve",
    "interval_of_episodes",
    "mean_and_interval",
    "mean_curve",
    "plot_learning_curves",
    "read_metrics",
    "run_episodes",
]
