"""Statistics over the tasks of a suite and the seeds of each, with bootstrap intervals.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
sections 4.1 to 4.3. `N` denotes seeds, `G` tasks. Scores are float64 `[N, G]`, normalised so that
tasks can be compared: 0 is random play, 1 the score to reach.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from .statistics import check_table

_REPETITIONS = 2000  # as in the paper
_TRIMMED = 0.25  # of the scores, at either end


class Estimate(NamedTuple):
    """A statistic and its bootstrap interval.

    Attributes:
      value: of all scores.
      low: the lower limit.
      high: the upper limit.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """`0.95 (0.9 to 1.02)`."""
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


def interquartile_mean(scores: np.ndarray) -> float:
    """The mean of the middle half of all scores, over seeds and tasks together (section 4.3)."""
    return float(stats.trim_mean(check_table(scores, "seeds", "tasks"), _TRIMMED, axis=None))


def optimality_gap(scores: np.ndarray, target: float = 1.0) -> float:
    """By how much scores are below the target on average; none counts beyond it (section 4.3)."""
    return float(target - np.mean(np.minimum(check_table(scores, "seeds", "tasks"), target)))


def performance_profile(scores: np.ndarray, thresholds: Sequence[float] | np.ndarray) -> np.ndarray:
    """The fraction of scores above each threshold (section 4.2, score distributions).

    Args:
      scores: `[N, G]`.
      thresholds: `[K]`.

    Returns:
      `[K]`, each in [0, 1].
    """
    return np.mean(
        check_table(scores, "seeds", "tasks")[..., None] > np.asarray(thresholds), axis=(0, 1)
    )


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> float:
    """How probable it is that a run beats another algorithm's, on a random task (section 4.3).

    A tie counts as half an improvement: the Mann-Whitney statistic of each task, and their mean.

    Args:
      scores: `[N, G]`.
      others: `[M, G]`, on the same tasks.

    Returns:
      In [0, 1].

    Raises:
      ValueError: the tasks are not as many.
    """
    scores, others = check_table(scores, "seeds", "tasks"), check_table(others, "seeds", "tasks")
    if scores.shape[1] != others.shape[1]:
        raise ValueError(
            f"scores and others must be of the same tasks, got {scores.shape[1]} and "
            f"{others.shape[1]}."
        )
    return float(np.mean((np.sign(scores[:, None] - others[None]) + 1.0) / 2.0))


def stratified_bootstrap(
    statistic: Callable[..., float],
    *scores: np.ndarray,
    rng: np.random.Generator,
    repetitions: int = _REPETITIONS,
    confidence: float = 0.95,
) -> Estimate:
    """A statistic with its percentile interval (section 4.1).

    Each repetition draws, for every task by itself, as many seeds as there are, with replacement.

    Args:
      statistic: of as many arrays `[N, G]` as are given.
      *scores: of the algorithms.
      rng: source of randomness; the same seed gives the same interval.
      repetitions: at least 1.
      confidence: coverage probability of the interval, in (0, 1).

    Raises:
      ValueError: `repetitions` or `confidence` is out of its range, or scores are not finite.
    """
    if repetitions < 1:
        raise ValueError(f"repetitions must be at least 1, got {repetitions}.")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}.")
    arrays = [check_table(x, "seeds", "tasks") for x in scores]
    found = [statistic(*(_resampled(x, rng) for x in arrays)) for _ in range(repetitions)]
    outside = 50.0 * (1.0 - confidence)
    low, high = np.percentile(found, [outside, 100.0 - outside])
    return Estimate(float(statistic(*arrays)), float(low), float(high))


def normalised(score: float, low: float, high: float) -> float:
    """`(score - low) / (high - low)`: 0 is random play, 1 the score to reach."""
    return (score - low) / (high - low)


def _resampled(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.take_along_axis(scores, rng.integers(len(scores), size=scores.shape), axis=0)
