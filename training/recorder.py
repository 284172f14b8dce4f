"""What a run writes for its user: rows of metrics, log lines, loggers, the best parameters."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..agents.base import ActorState, Params
from ..basics.sentences import reason
from .config_file import values_of
from .log import FILE_ONLY
from .metrics import Counters, EqualReturns, next_multiple
from .metrics_writer import MetricsTable, flat
from .progress import Progress, ending
from .run_config import RunConfig
from .snapshots import BestParameters

_FAILED = object()  # in place of what a logger's function returns
_log = logging.getLogger("retrax")


class MetricsLogger(contextlib.AbstractContextManager["MetricsLogger"]):
    """Calls `RunConfig.logger` and another function with each row. Their errors end no run.

    A function takes the steps, and a dictionary from column to number. If it returns True or raises
    SystemExit, the run is stopped, with a snapshot. An object may have two methods besides:
    `begin(config, directory)`, called before the first row with the fields of config.json, nested
    ones under names with dots; and `close()`, called at the end of the run. One that does not begin
    gets neither rows nor `close`. Of several errors the first is logged.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        on_metrics: Callable[[int, dict[str, float]], Any] | None = None,
        *,
        stop: threading.Event,
    ):
        """`stop` is set where the run must be stopped."""
        self._values, self._directory, self._stop = flat(values_of(config)), directory, stop
        self._has_failed = False
        found = [each for each in (config.find_logger(), on_metrics) if each is not None]
        made = [self._call(each) if isinstance(each, type) else each for each in found]
        self._functions = [each for each in made if callable(each)]

    def __enter__(self) -> "MetricsLogger":
        self._functions = [
            each
            for each in self._functions
            if not hasattr(each, "begin")
            or self._call(each.begin, self._values, self._directory) is not _FAILED
        ]
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._functions:
            if hasattr(each, "close"):
                self._call(each.close)

    def write(self, steps: int, row: Mapping[str, float]) -> None:
        """Gives a row to all functions."""
        for each in self._functions:
            answer = self._call(each, steps, dict(row))
            if isinstance(answer, bool | np.bool_) and answer:  # trackers may return anything else
                self._stop.set()

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except SystemExit:  # as Ray Tune ends a trial
            self._stop.set()
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                _log.warning(
                    f"A logger of metrics failed ({reason(error)}). The run continues; further "
                    "errors of loggers are not logged."
                )
                _log.warning("Its traceback:", exc_info=True)  # to the file alone
        return _FAILED


class Recorder(contextlib.ExitStack):
    """Receives what happens in a run, whatever executes it, and writes what its user sees of it.

    Rows go to metrics.csv, TensorBoard and the user's loggers, one of which may stop the run. What
    they show to be wrong is a warning in the log `retrax`, once. In a `with` block, the loggers
    have begun and the progress is shown.

    Attributes:
      next_row: steps at which a row is due.
      evaluation: means of the newest evaluation, until a row has them.
      extra: of one that only the last row has, which a run that continues drops.
      last_return: mean return of the newest row in which an episode ended, NaN before.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        names: Sequence[str],
        *,
        stop: threading.Event,
        start: Counters,
        resumed_at: int | None = None,
        seconds: float = 0.0,
        on_metrics: Callable[[int, dict[str, float]], Any] | None = None,
        progress: Progress | None = None,
    ):
        """Opens metrics.csv, see `MetricsTable`; `close` closes it.

        Columns are the counters, the agent's episode metrics, `names` and the rates. `start` are
        the counters of the run now, `seconds` those that earlier parts took. `on_metrics` gets each
        row, as `config.logger` does, and either may set `stop`.
        """
        super().__init__()
        self._config, self._progress = config, progress
        self._started = time.perf_counter() - seconds
        self._advise = config.entry.advice
        self._equal = EqualReturns(config.schedule[0], start=start.steps)
        self.evaluation: dict[str, float] = {}
        self.extra: dict[str, float] = {}
        self.last_return, self.best = math.nan, BestParameters(directory)
        flushed_at = start.steps if resumed_at is None else resumed_at
        self.next_row = next_multiple(flushed_at, config.schedule[1])
        columns = [*(f"episode_{name}" for name in config.entry.episode_metrics), *names]
        self._table = MetricsTable(directory, columns, resumed_at=resumed_at)
        self.callback(self._table.close)
        self._logger = MetricsLogger(config, directory, on_metrics, stop=stop)

    def __enter__(self) -> "Recorder":
        self.enter_context(self._logger)
        if self._progress is not None:
            self.enter_context(self._progress)
        return self

    @property
    def seconds(self) -> float:
        """Wall-clock time of the run, earlier parts included."""
        return time.perf_counter() - self._started

    def advanced(self, counters: Counters, looped: float) -> None:
        """Steps were taken and updates made, which have taken `looped` seconds since the start."""
        if self._progress is not None:
            line = self._progress.expect(counters, looped=looped, elapsed=self.seconds)
            if line:
                _log.info(line)

    def evaluated(
        self,
        means: Mapping[str, float],
        steps: int,
        params: Params,
        actors: ActorState = None,
        *,
        is_extra: bool = False,
    ) -> None:
        """An evaluation ended: the next row has it, and its parameters are kept if they are best.

        One that `is_extra`, since the run ends before the next is due, is in the last row only.
        """
        (self.extra if is_extra else self.evaluation).update(means)
        found = means["evaluation_return"]
        is_best = self.best.offer(params, mean_return=found, steps=steps, actors=actors)
        _log.info(
            f"Evaluation at {steps} steps: return {found:.3g} over "
            f"{self._config.evaluation_episodes} episodes{', the best so far' * is_best}."
        )

    def write(
        self,
        counters: Counters,
        means: Mapping[str, float],
        clock: Mapping[str, float],
        returns: Sequence[float] = (),
    ) -> None:
        """Writes a row: `means`, `returns` and the rates of `clock` are since the row before."""
        clock = {**clock, "seconds": self.seconds}
        row = self._table.write(counters, {**means, **self.evaluation, **self.extra}, clock)
        self._logger.write(counters.steps, row)
        self.evaluation = {}
        self.last_return = means.get("episode_return", self.last_return)
        self.next_row = next_multiple(counters.steps, self._config.schedule[1])
        if self._progress and (line := self._progress.show(counters, self.last_return, clock)):
            _log.info(line, extra={FILE_ONLY: self._progress.has_bar})
        if self._advise and (advice := self._advise(self._config.agent_config, means)):
            self._advise = None
            _log.warning(advice)
        if sentence := self._equal.sentence(counters.steps, returns):
            _log.warning(sentence)

    def end(self, counters: Counters, *, interrupted: bool) -> None:
        """The run has ended, with its last row."""
        _log.info(ending(counters, self.seconds, self.last_return, interrupted=interrupted))
