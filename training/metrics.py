"""Counters of a run, returns of running episodes, and means of metrics between two log rows.

`E` denotes the environments that are stepped together.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np

from ..datatypes import TimeStep

_RATE_SECONDS = 5.0  # rates are means over this long
_EPISODES = 20  # fewer may have the same return by chance


@dataclasses.dataclass(kw_only=True)
class Counters:
    """How far a run has come."""

    steps: int = 0  # transitions taken in all environments
    episodes: int = 0  # that have ended
    updates: int = 0  # of the learner
    learning_since: int = -1  # steps at which learning began, -1 before


class RunningReturns:
    """Sums the rewards of the running episodes of E environments.

    Attributes:
      sums: returns and lengths so far `[E]`; may be set.
    """

    def __init__(self, num_envs: int) -> None:
        self.sums: Sequence[np.ndarray] = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def add(self, timestep: TimeStep) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Adds time steps `[E, ...]`.

        Returns:
          Which environments' episodes ended now, in order; their returns, and their lengths.
        """
        first = timestep.step_type == dm_env.StepType.FIRST
        returns, lengths = self.sums
        returns = np.where(first, 0.0, returns + timestep.reward)
        lengths = np.where(first, 0, lengths + 1)
        self.sums = returns, lengths
        ended = np.flatnonzero(timestep.step_type == dm_env.StepType.LAST)
        return ended, returns[ended], lengths[ended]


class MetricsAccumulator:
    """Means of what was added since the last `flush`.

    Attributes:
      open: what was added, plain data that may be set: values of episodes, totals and counts.
    """

    def __init__(self) -> None:
        self.open: Sequence[dict[str, Any]] = {}, {}, {}

    def add_episodes(self, episodes: Mapping[str, Sequence[float]], prefix: str = "") -> None:
        """Adds values of episodes that ended by name, logged as `{prefix}episode_{name}`."""
        for name, values in episodes.items():
            self.open[0].setdefault(f"{prefix}episode_{name}", []).extend(values)

    def add(self, metrics: Mapping[str, Any], count: int = 1) -> None:
        """Adds means over `count` updates, or single values."""
        _, totals, counts = self.open
        for name, value in metrics.items():
            totals[name] = totals.get(name, 0.0) + count * float(value)
            counts[name] = counts.get(name, 0) + count

    @property
    def returns(self) -> Sequence[float]:
        """Returns of the episodes that were added since the last `flush`."""
        return self.open[0].get("episode_return", [])

    @property
    def weight(self) -> int:
        """Updates whose means were added since the last `flush`; `add` of the means takes it."""
        return max(self.open[2].values(), default=0)

    def take_episodes(self) -> dict[str, list[float]]:
        """The values of episodes that were added without a prefix, which are then forgotten."""
        episodes, *others = self.open
        self.open = {}, *others
        return {name.removeprefix("episode_"): values for name, values in episodes.items()}

    def flush(self) -> dict[str, float]:
        """Means of everything that was added, which is then forgotten."""
        (episodes, totals, counts), self.open = self.open, ({}, {}, {})
        means = {name: float(np.mean(values)) for name, values in episodes.items() if values}
        return means | {name: total / counts[name] for name, total in totals.items()}


class Rate:
    """The growth of a count per second, over the last few seconds."""

    def __init__(self) -> None:
        self._points: collections.deque[tuple[float, int]] = collections.deque()

    def add(self, now: float, count: int) -> None:
        """Adds a count at a time, in seconds; to be called at least once a second."""
        if self._points and count < self._points[-1][1]:  # what counts was restarted
            self._points.clear()
        self._points.append((now, count))
        while now - self._points[0][0] > _RATE_SECONDS:
            self._points.popleft()

    def per_second(self) -> float:
        """0 before the second count."""
        if len(self._points) < 2:
            return 0.0
        (first, low), (last, high) = self._points[0], self._points[-1]
        return (high - low) / (last - first) if last > first else 0.0


class EqualReturns:
    """Says once, in a run from `start` to `steps`, that no reward distinguishes good actions."""

    def __init__(self, steps: int, *, start: int = 0) -> None:
        self._tenth = steps / 10
        self._is_over = start > self._tenth
        self._returns: list[float] = []

    def sentence(self, steps: int, returns: Sequence[float]) -> str | None:
        """The sentence, after a tenth of the run whose `returns`, of all calls, are the same."""
        if self._is_over:
            return None
        self._returns.extend(returns)
        differ = len(set(self._returns)) > 1
        self._is_over = differ or (steps >= self._tenth and len(self._returns) >= _EPISODES)
        if differ or not self._is_over:
            return None
        return (
            f"All episodes of the first tenth of the run returned {self._returns[0]:g}: no reward "
            "has told yet which actions are better. Agent57 seeks what is new, D4PG's noise moves "
            "what has inertia, ACER and Reactor meet rare rewards by chance (docs/environments.md)."
        )


def next_multiple(value: int, of: int) -> int:
    """The least multiple of a number that is greater than a value."""
    return (value // of + 1) * of
