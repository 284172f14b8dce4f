"""Statistics of episodes and seeds, and over the tasks of a suite, in float64.

`N` denotes the number of values or seeds, `G` of tasks. Statistics over tasks: Agarwal et al. 2021,
"Deep Reinforcement Learning at the Edge of the Statistical Precipice", sections 4.1 to 4.3. Their
scores are normalised so that tasks can be compared: 0 is random play, 1 the score to reach.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import special

LEAST_EPISODES = 10  # of an evaluation with an interval

Curve = tuple[np.ndarray, np.ndarray]  # x, increasing, and y
Numbers = TypeVar("Numbers", float, np.ndarray)


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
    """The confidence interval of `mean_curve`, at each x separately: x and both limits, `[K]`."""
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
    return np.array([np.mean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))])


def normalised(score: Numbers, low: Numbers, high: Numbers) -> Numbers:
    """`(score - low) / (high - low)`: 0 is random play, 1 the score to reach."""
    return (score - low) / (high - low)


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of scores `[..., N, G]` without the lowest and the highest `floor(n / 4)` of n."""
    flat = np.sort(np.reshape(scores, (*np.shape(scores)[:-2], -1)), axis=-1)
    discarded = flat.shape[-1] // 4
    return np.mean(flat[..., discarded : flat.shape[-1] - discarded], axis=-1)


def optimality_gap(scores: np.ndarray) -> np.ndarray:
    """How far scores `[..., N, G]` are below 1 on average; scores above 1 count as 1."""
    return 1.0 - np.mean(np.minimum(scores, 1.0), axis=(-2, -1))


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The probability that a run beats another algorithm's on a random task (section 4.3).

    The mean over tasks of their Mann-Whitney statistics, in which a tie is half a win, of scores
    `[..., N, G]` and others `[..., M, G]`.
    """
    if scores.shape[-1] != others.shape[-1]:
        raise ValueError(
            f"scores and others must be of the same tasks, got {scores.shape[-1]} and "
            f"{others.shape[-1]}."
        )
    wins = (np.sign(scores[..., :, None, :] - others[..., None, :, :]) + 1.0) / 2.0
    return np.mean(wins, axis=(-3, -2, -1))


def stratified_bootstrap(
    statistic: Callable[..., np.ndarray],
    *scores: np.ndarray,
    generator: np.random.Generator,
    resamples: int = 2000,
) -> Interval:
    """A statistic of the scores `[N, G]` of each algorithm, with its 95 % interval (section 4.1).

    Stratified: for each task, as many of its seeds as there are are drawn with replacement, so
    every resample contains each task as often as the data. Single seeds have no interval.
    """
    tables = [check_table(table, "seeds", "tasks") for table in scores]
    value = float(statistic(*tables))
    if all(len(table) == 1 for table in tables):
        return Interval(value, np.nan, np.nan)
    drawn = []
    for table in tables:
        seeds = generator.integers(len(table), size=(resamples, *table.shape))
        drawn.append(np.take_along_axis(table[None], seeds, axis=1))
    low, high = np.quantile(statistic(*drawn), (0.025, 0.975))
    return Interval(value, float(low), float(high))


def check_table(scores: np.ndarray, rows: str, columns: str) -> np.ndarray:
    """Scores as float64 `[rows, columns]`; ValueError if they are not, or not finite."""
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 2 or 0 in scores.shape or not np.all(np.isfinite(scores)):
        raise ValueError(f"scores must be finite, [{rows}, {columns}], got shape {scores.shape}.")
    return scores
