"""What a person sees while a run is going on: a bar in a terminal, log lines elsewhere."""

import time
import types
from collections.abc import Mapping
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from .loop import Counters

_LINE_SECONDS = 10.0  # log lines are at least this far apart


class Progress:
    """Steps, rates, return and time to go."""

    def __init__(self, steps: int, *, start: int = 0, plain: bool = False):
        """Args:
        steps: the run's last step.
        start: the step at which this part of it begins.
        plain: never a bar.
        """
        self._steps, self._start = steps, start
        self._started = time.perf_counter()
        self._last_line = self._started
        console = Console(stderr=True)
        self._bar: Bar | None = None
        if console.is_terminal and not plain:
            self._bar = Bar(BarColumn(), TextColumn("{task.description}"), console=console)
            self._task = self._bar.add_task("starting", total=steps, completed=start)

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, counters: Counters, last_return: float, clock: Mapping[str, float]) -> str:
        """Brings the bar up to date, or gives a line for the log ("" if there was one just now)."""
        now = time.perf_counter()
        text = (
            f"{counters.steps}/{self._steps} steps | {clock['steps_per_second']:.0f} steps/s "
            f"(acting {clock['acting_steps_per_second']:.0f} steps/s, "
            f"learning {clock['learning_updates_per_second']:.1f} updates/s) | "
            f"{counters.updates} updates | return {last_return:.3g} | ETA {self._eta(counters, now)}"
        )
        if self._bar:
            self._bar.update(self._task, description=text, completed=counters.steps)
            return ""
        if now - self._last_line < _LINE_SECONDS and counters.steps < self._steps:
            return ""
        self._last_line = now
        return text

    def _eta(self, counters: Counters, now: float) -> timedelta:
        done = counters.steps - self._start
        left = max(self._steps - counters.steps, 0)
        return timedelta(seconds=round((now - self._started) * left / max(done, 1)))
