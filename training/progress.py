"""Progress of a run: a progress bar in a terminal, log lines otherwise; its expected duration."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from ..datatypes import EnvironmentSpec
from ..replay.interface import RowStore
from .metrics import Counters
from .run_config import RunConfig

_LINE_SECONDS = 10.0  # minimum time between log lines
_WARM_UP_SECONDS = 2.0  # after the first update: the second one may compile once more
_MEASURED_SECONDS = 5.0
_BAR_LETTERS = 20  # of a notebook's bar


def describe(
    config: RunConfig,
    directory: Path,
    replays: Sequence[RowStore],
    spec: EnvironmentSpec,
    *,
    from_data: bool,
) -> list[str]:
    """The first lines of a run's log."""
    rows, nbytes = sum(x.capacity for x in replays), sum(x.nbytes for x in replays)
    learns = f"learning starts at {config.replay.min_rows} rows"
    if from_data:
        learns = "each step is an update"
    return [
        f"{config.agent} on {config.environment}, preset {config.preset}, {config.steps} steps, "
        f"seed {config.seed}, {config.num_envs} environments, in {directory}",
        f"Replay: {rows} rows take {nbytes / 1e9:.2f} GB when it is full; {learns}. "
        "Compiling comes before the first steps and the first updates.",
        config.entry.describe_preset(config.environment, spec),
    ]


def ending(counters: Counters, seconds: float, last_return: float, *, interrupted: bool) -> str:
    """The last line of a run's log."""
    trained = f"last training return {last_return:.3g}"
    return (
        f"{'Stopped' if interrupted else 'Finished'} at {counters.steps} steps and "
        f"{counters.updates} updates, on average {rate(counters.steps / seconds)} steps/s and "
        f"{rate(counters.updates / seconds)} updates/s with compiling and evaluations; "
        f"{'no episode ended' if math.isnan(last_return) else trained}."
    )


class Progress:
    """Shows steps, rates, return and remaining time; expects the duration of the run once."""

    def __init__(self, steps: int, start: Counters, *, plain: bool = False):
        """Prepares the display of a run that continues at `start`; `plain` has no bar."""
        self._steps, self._updates_before = steps, start.updates
        self._measured_from: tuple[float, int] | None = None
        self._warm_at: float | None = None
        self._expected_from: tuple[float, int] | None = None
        self._is_told = False
        self._last_line = time.perf_counter()
        console = Console(stderr=True)
        self._bar: Bar | None = None
        self._is_notebook, self._written = console.is_jupyter and not plain, 0
        if console.is_terminal and not plain:
            # The bar fills the width that the text leaves, so that the ETA fits into 80 columns.
            text = TextColumn("{task.description}", markup=False)
            self._bar = Bar(text, BarColumn(bar_width=None), console=console, expand=True)
            self._task = self._bar.add_task("compiling", total=steps, completed=start.steps)

    @property
    def has_bar(self) -> bool:
        """Whether a bar is shown; log lines then need not go to the terminal."""
        return self._bar is not None or self._is_notebook

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        self._write("compiling")
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar:
            self._bar.stop()
        self._write("", end="\n")

    def show(self, counters: Counters, last_return: float, clock: Mapping[str, float]) -> str:
        """Updates the bar; returns a log line, or "" if the previous one is recent."""
        now = time.perf_counter()
        steps, eta = f"{counters.steps}/{self._steps} steps", self._eta(counters, now)
        speed = f"{clock['steps_per_second']:.0f} steps/s"
        learning = f"{rate(clock['learning_updates_per_second'])} updates/s"
        text = f"{steps}, {speed}, {learning}, return {last_return:.3g}, ETA {eta}"
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=counters.steps)
        filled = "#" * (_BAR_LETTERS * counters.steps // self._steps)
        self._write(f"[{filled:.<{_BAR_LETTERS}}] {text}")
        if now - self._last_line < _LINE_SECONDS and counters.steps < self._steps:
            return ""
        self._last_line = now
        acting = f"{clock['acting_steps_per_second']:.0f} steps/s"
        return (
            f"{steps} | {speed} (acting {acting}, learning {learning}) | "
            f"{counters.updates} updates | return {last_return:.3g} | ETA {eta}"
        )

    def expect(self, counters: Counters, *, looped: float, elapsed: float) -> str:
        """A log line about the duration of the run, once; "" before and after.

        It is expected from the first seconds of learning: before the first update there is acting
        alone, which is faster, and compilation. `looped` are seconds of acting and learning alone.
        """
        if self._is_told or counters.updates == self._updates_before:
            return ""
        if self._warm_at is None:
            self._warm_at = looped + _WARM_UP_SECONDS
        if self._expected_from is None:
            if looped >= self._warm_at:
                self._expected_from = looped, counters.steps
            return ""
        seconds, steps = looped - self._expected_from[0], counters.steps - self._expected_from[1]
        if seconds < _MEASURED_SECONDS or not steps:
            return ""
        self._is_told = True
        left = max(self._steps - counters.steps, 0) * seconds / steps
        return (
            f"Expected duration on this machine: {_minutes(elapsed + left)}, of which "
            f"{_minutes(left)} are left ({rate(steps / seconds)} steps/s; without later "
            "evaluations and snapshots)."
        )

    def _write(self, text: str, end: str = "") -> None:
        """Replaces the line of a notebook, which has no terminal's bars."""
        if self._is_notebook:
            sys.stdout.write(f"\r{text:<{self._written}}" * bool(text) + end)
            sys.stdout.flush()
            self._written = len(text)

    def _eta(self, counters: Counters, now: float) -> str:
        """By the speed since updates were first seen: acting alone is faster, compiling slower."""
        left = max(self._steps - counters.steps, 0)
        if self._measured_from is None and counters.updates > self._updates_before:
            self._measured_from = now, counters.steps
        since, steps = self._measured_from or (now, counters.steps)
        if left and counters.steps == steps:
            return "-"
        return str(timedelta(seconds=round((now - since) * left / max(counters.steps - steps, 1))))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.{int(seconds < 600)}f} minutes"


def rate(value: float) -> str:
    """Formats a rate, with one decimal below 10; NaN (no updates) is 0."""
    return "0" if math.isnan(value) else f"{value:.0f}" if value >= 10 else f"{value:.1f}"
