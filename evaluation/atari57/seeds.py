"""Several seeds of one algorithm: how far its interquartile mean is to be believed.

`R` denotes the number of seeds, `G` the number of games, `B` the number of resamples.
"""

import numpy as np
from scipy import stats

from ..statistics import Interval


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of all seeds and games together (Agarwal et al. 2021).

    Args:
      scores: `[..., R, G]`, human-normalised.

    Returns:
      `[...]`. Of n values the lowest and the highest `floor(n / 4)` are left out.
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
    """The interquartile mean, with the stratified bootstrap's percentile interval.

    Stratified: each game draws R of its own seeds anew, with replacement, so that every resample
    has every game as often as the data (Agarwal et al. 2021, section 4.1).

    Args:
      scores: `[R, G]`, human-normalised.
      generator: from which the seeds are drawn.
      confidence: in (0, 1).
      resamples: B, at least 1.

    Returns:
      The interval; of a single seed the spread is unknown, so its limits are NaN.

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
