"""Interquartile mean over seeds and games, and its confidence interval.

`R` denotes the number of seeds, `G` the number of games, `B` the number of resamples.
"""

import numpy as np
from scipy import stats

from ..statistics import Interval


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of the scores of all seeds and games (Agarwal et al. 2021).

    Args:
      scores: `[..., R, G]`, human-normalised.

    Returns:
      `[...]`. The lowest and the highest `floor(n / 4)` of n values are discarded.
    """
    flat = np.reshape(scores, (*np.shape(scores)[:-2], -1))
    return stats.trim_mean(flat, 0.25, axis=-1)


def iqm_interval(
    scores: np.ndarray,
    generator: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """The interquartile mean, with a percentile interval from the stratified bootstrap.

    Stratified: for each game, R of its seeds are drawn with replacement, so every resample contains
    each game as often as the data (Agarwal et al. 2021, section 4.1).

    Args:
      scores: `[R, G]`, human-normalised.
      generator: draws the seeds.
      confidence: in (0, 1).
      resamples: B, at least 1.

    Returns:
      The interval. Its limits are NaN for a single seed, whose spread is unknown.

    Raises:
      ValueError: an argument is out of its range.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 2 or 0 in scores.shape or not np.all(np.isfinite(scores)):
        raise ValueError(f"scores must be finite, [seeds, games], got shape {scores.shape}.")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}.")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}.")
    mean = float(interquartile_mean(scores))
    if len(scores) == 1:
        return Interval(mean, np.nan, np.nan)
    drawn = generator.integers(len(scores), size=(resamples, *scores.shape))
    means = interquartile_mean(np.take_along_axis(scores[None], drawn, axis=1))
    low, high = np.quantile(means, [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0])
    return Interval(mean, float(low), float(high))
