"""Evaluation of agents: episodes, statistics, plots and videos.

`atari57` compares agents with published scores, `statistics` over the tasks and seeds of a suite.
"""

from .evaluations import EpisodeResults, Evaluation, Scores, run_episodes
from .plots import plot_learning_curves, read_metrics
from .statistics import (
    Interval,
    interval_curve,
    interval_of_episodes,
    mean_and_interval,
    mean_curve,
)
from .video import VideoWriter

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
