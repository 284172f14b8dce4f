"""What a program writes down while it runs: status.json for the live table, rows of metrics.csv."""

import collections
import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..datatypes import SequenceSpec
from ..experiments.loggers import MetricsWriter
from ..experiments.loop import Counters

STATUS = "status.json"
_RATE_SECONDS = 5.0  # rates are means over this long

# Columns of metrics.csv, besides the counters and the update's own metrics.
_EPISODE_COLUMNS = ("episode_return", "episode_length")
_PROGRAM_COLUMNS = (
    "evaluator_return",
    "evaluator_length",
    "parameter_staleness",
    "learner_idle_share",
    "replay_rows",
    "replay_sequences",
)
_CLOCK_COLUMNS = (
    "seconds",
    "acting_steps_per_second",
    "learning_updates_per_second",
    "steps_per_second",
)


class Rate:
    """How fast a count grows."""

    def __init__(self) -> None:
        self._points: collections.deque[tuple[float, int]] = collections.deque()

    def add(self, now: float, count: int) -> None:
        """Looks at the count, at least once a second."""
        self._points.append((now, count))
        while now - self._points[0][0] > _RATE_SECONDS:
            self._points.popleft()

    def per_second(self) -> float:
        """0 at first."""
        if len(self._points) < 2:
            return 0.0
        (first, low), (last, high) = self._points[0], self._points[-1]
        return (high - low) / (last - first) if last > first else 0.0


class Window:
    """What came since the last row: episodes, and metrics of updates."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add_episodes(self, actor: str, episodes: Mapping[str, Sequence[float]]) -> None:
        """Adds what an actor ("actor/0") reported of episodes that ended: `return`, extras ..."""
        for name, values in episodes.items():
            for whose in ("", f"{actor.replace('/', '_')}_"):
                self._values.setdefault(f"{whose}episode_{name}", []).extend(values)

    def add_metrics(self, metrics: Mapping[str, float]) -> None:
        """Adds what a learner or an evaluator reported."""
        for name, value in metrics.items():
            self._values.setdefault(name, []).append(value)

    def means(self, names: Sequence[str]) -> dict[str, float]:
        """NaN where nothing came.

        Args:
          names: of metrics and episodes' extras, as `Rows` has them.
        """
        return {name: _mean(self._values.get(name, [])) for name in (*_EPISODE_COLUMNS, *names)}


def program_metrics(sequence: SequenceSpec, num_actors: int) -> list[str]:
    """What a program tells besides: each actor's episodes, each mode of the evaluator."""
    of_actors = [
        f"actor_{index}_episode_{name}"
        for index in range(num_actors)
        for name in ("return", *sequence.episode_extras)
    ]
    return [*of_actors, *(f"evaluator_return_{name}" for name in sequence.evaluation_modes)]


class Rows:
    """The rows of metrics.csv."""

    def __init__(self, directory: Path, metric_names: Sequence[str], *, steps: int):
        """Starts new metrics, or goes on with those that are there.

        Args:
          directory: the run directory.
          metric_names: of the agent's updates, of the episodes' extras, and `program_metrics`.
          steps: rows with more, of an earlier part of the run, are dropped.
        """
        counters = [field.name for field in dataclasses.fields(Counters)]
        columns = [
            *counters,
            *_EPISODE_COLUMNS,
            *metric_names,
            *_PROGRAM_COLUMNS,
            *_CLOCK_COLUMNS,
        ]
        self._names = list(metric_names)
        self._writer = (
            MetricsWriter.resume(directory, columns, steps)
            if (directory / "metrics.csv").exists()
            else MetricsWriter(directory, columns)
        )

    def write(self, status: Mapping[str, Any], window: Window) -> None:
        """Writes a row.

        Args:
          status: as the counter gives it.
          window: what came since the last row.
        """
        learner = status["nodes"].get("learner/0", {})
        evaluator = status["nodes"].get("evaluator/0", {})
        staleness = [v["staleness"] for v in status["nodes"].values() if "staleness" in v]
        empty = float("nan")
        self._writer.write(
            {
                **{field.name: status[field.name] for field in dataclasses.fields(Counters)},
                **window.means(self._names),
                "evaluator_return": evaluator.get("return", empty),
                "evaluator_length": evaluator.get("length", empty),
                "parameter_staleness": _mean(staleness),
                "learner_idle_share": learner.get("idle_share", empty),
                "replay_rows": learner.get("replay_rows", empty),
                "replay_sequences": learner.get("replay_sequences", empty),
                "seconds": status["seconds"],
                "acting_steps_per_second": status["steps_per_second"],
                "learning_updates_per_second": status["updates_per_second"],
                "steps_per_second": status["steps_per_second"],
            }
        )

    def close(self) -> None:
        """Closes the files."""
        self._writer.close()


def write_status(directory: Path, status: Mapping[str, Any]) -> None:
    """Replaces status.json in one go."""
    partial = directory / f"{STATUS}.partial"
    partial.write_text(json.dumps(status))
    partial.replace(directory / STATUS)


def read_status(directory: Path) -> dict[str, Any]:
    """The newest status; empty before the first."""
    with contextlib.suppress(FileNotFoundError):
        status: dict[str, Any] = json.loads((directory / STATUS).read_text())
        return status
    return {}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
