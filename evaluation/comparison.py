"""Statistics over the tasks of a suite and the seeds of each, with bootstrap intervals.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
sections 4.1 to 4.3. `N` denotes seeds, `G` tasks, `B` resamples. Scores are normalised so that
tasks can be compared: 0 is random play, 1 the score to reach.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from scipy import stats

from .statistics import Interval, check_table

Numbers = TypeVar("Numbers", float, np.ndarray)
_TRIMMED = 0.25  # of the scores, at either end


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of the scores `[..., N, G]` of all seeds and tasks (section 4.3).

    The lowest and the highest `floor(n / 4)` of n values are discarded.
    """
    flat = np.reshape(scores, (*np.shape(scores)[:-2], -1))
    return stats.trim_mean(flat, _TRIMMED, axis=-1)


def optimality_gap(scores: np.ndarray, target: float = 1.0) -> np.ndarray:
    """By how much scores `[..., N, G]` are below the target on average (section 4.3).

    None counts beyond the target, a normalised score.
    """
    return target - np.mean(np.minimum(scores, target), axis=(-2, -1))


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How probable it is that a run beats another algorithm's, on a random task (section 4.3).

    The mean over tasks of their Mann-Whitney statistics, in which a tie is half a win: `[...]` in
    [0, 1], from scores `[..., N, G]` and others `[..., M, G]` on the same tasks.
    """
    scores, others = np.asarray(scores), np.asarray(others)
    if scores.shape[-1] != others.shape[-1]:
        raise ValueError(
            f"scores and others must be of the same tasks, got {scores.shape[-1]} and "
            f"{others.shape[-1]}."
        )
    wins = (np.sign(scores[..., :, None, :] - others[..., None, :, :]) + 1.0) / 2.0
    return np.mean(wins, axis=(-3, -2, -1))


def performance_profile(scores: np.ndarray, thresholds: Sequence[float] | np.ndarray) -> np.ndarray:
    """The fractions `[K]` of scores `[N, G]` above each of K thresholds (section 4.2)."""
    scores = check_table(scores, "seeds", "tasks")
    return np.mean(scores[..., None] > np.asarray(thresholds), axis=(0, 1))


def stratified_bootstrap(
    statistic: Callable[..., np.ndarray],
    *scores: np.ndarray,
    generator: np.random.Generator,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """A statistic with its percentile interval (section 4.1).

    Stratified: for each task, as many of its seeds as there are are drawn with replacement, so
    every resample contains each task as often as the data.

    Args:
      statistic: of as many arrays `[..., N, G]` as are given: one of the above.
      *scores: `[N, G]` of each algorithm; single seeds have no interval.
      generator: draws the seeds.
      confidence: in (0, 1).
      resamples: B, at least 1.

    Raises:
      ValueError: an argument is out of its range.
    """
    tables = [check_table(table, "seeds", "tasks") for table in scores]
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}.")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}.")
    value = float(statistic(*tables))
    if all(len(table) == 1 for table in tables):
        return Interval(value, np.nan, np.nan)
    drawn = []
    for table in tables:
        seeds = generator.integers(len(table), size=(resamples, *table.shape))
        drawn.append(np.take_along_axis(table[None], seeds, axis=1))
    limits = (1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0
    low, high = np.quantile(statistic(*drawn), limits)
    return Interval(value, float(low), float(high))


def normalised(score: Numbers, low: Numbers, high: Numbers) -> Numbers:
    """`(score - low) / (high - low)`: 0 is random play, 1 the score to reach."""
    return (score - low) / (high - low)
