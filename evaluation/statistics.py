"""Statistics over episodes and seeds, in float64. `N` denotes the number of values."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

LEAST_EPISODES = 10  # of an evaluation with an interval

Curve = tuple[np.ndarray, np.ndarray]  # x, increasing, and y


class Interval(NamedTuple):
    """A mean, or another statistic, and its confidence interval; limits are NaN if unknown."""

    mean: float
    low: float
    high: float

    def __format__(self, form: str) -> str:
        """`12.5 (10.1 to 14.9)`, or `12.5` without an interval; each number in the form."""
        mean, low, high = (format(number, form or ".6g") for number in self)
        return mean if np.isnan(self.low) else f"{mean} ({low} to {high})"


def mean_and_interval(values: np.ndarray | Sequence[float], confidence: float = 0.95) -> Interval:
    """The mean and its confidence interval by Student's t-distribution.

    It is `mean +- t s / sqrt(N)` of values `[N]`, with `s` the standard deviation (N - 1 in its
    denominator) and `t` the `(1 + confidence) / 2` quantile with N - 1 degrees of freedom. It
    assumes independent, approximately normal values: a rough estimate for three seeds. The limits
    are NaN for a single value and if a value is not finite.

    Raises:
      ValueError: there is no value, or the confidence is not in (0, 1).
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"values must be a vector of at least one, got shape {values.shape}.")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}.")
    if values.size == 1 or not np.all(np.isfinite(values)):
        with np.errstate(invalid="ignore"):  # inf - inf
            return Interval(float(np.mean(values)), np.nan, np.nan)
    if np.all(values == values[0]):  # the mean of equal values may differ from them by rounding
        return Interval(*[float(values[0])] * 3)
    mean = float(np.mean(values))
    quantile = special.stdtrit(values.size - 1, (1.0 + confidence) / 2.0)
    half_width = float(quantile * np.std(values, ddof=1) / np.sqrt(values.size))
    return Interval(mean, mean - half_width, mean + half_width)


def interval_of_episodes(returns: np.ndarray | Sequence[float]) -> Interval:
    """`mean_and_interval` of the returns `[N]` of an evaluation, which are often far from normal.

    It is NaN for fewer than `LEAST_EPISODES`, and ends at the extreme returns, as a bootstrap's.
    """
    mean, low, high = mean_and_interval(returns)
    if len(returns) < LEAST_EPISODES:
        return Interval(mean, np.nan, np.nan)
    return Interval(mean, *(float(x) for x in np.clip([low, high], min(returns), max(returns))))


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of curves that were measured at different x.

    Each is interpolated linearly at the x of all, from the largest first to the smallest last x, so
    the mean does not jump where one ends. A ValueError refuses no curves, and an empty one.
    """
    grid, values = _interpolated(curves)
    return grid, np.mean(values, axis=0)


def interval_curve(
    curves: Sequence[Curve], confidence: float = 0.95
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The confidence interval of `mean_curve`, at each x by itself: x and both limits, `[K]`."""
    grid, values = _interpolated(curves)
    each = [mean_and_interval(column, confidence) for column in values.T]
    return grid, np.array([x.low for x in each]), np.array([x.high for x in each])


def _interpolated(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """The x that all curves cover, `[K]`, and each curve's values there, `[N, K]`."""
    if not curves or any(len(x) == 0 for x, _ in curves):
        raise ValueError("A mean needs at least one curve, and no curve may be empty.")
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    start, stop = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = grid[(grid >= start) & (grid <= stop)]
    return grid, np.array([np.interp(grid, x, y) for x, y in curves])


def moving_average(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and the `window - 1` before it (of fewer at the beginning)."""
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}.")
    values = np.asarray(values, np.float64)
    return np.array([np.mean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))])


def check_table(scores: np.ndarray, rows: str, columns: str) -> np.ndarray:
    """Scores as float64 `[rows, columns]`; ValueError if they are not, or not finite."""
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 2 or 0 in scores.shape or not np.all(np.isfinite(scores)):
        raise ValueError(f"scores must be finite, [{rows}, {columns}], got shape {scores.shape}.")
    return scores
