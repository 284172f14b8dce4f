"""Rows of a run for a user's functions: experiment trackers, the stopping rule of a search."""

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..basics.sentences import reason
from .config_file import values_of
from .metrics_writer import flat
from .run_config import RunConfig

_log = logging.getLogger("retrax")


class MetricsLogger(contextlib.AbstractContextManager["MetricsLogger"]):
    """Calls `RunConfig.logger` and another function with each row. Their errors end no run.

    A function takes the steps, and a dictionary from column to number. If it returns True or raises
    SystemExit, the run is stopped, with a snapshot. An object may have two methods besides:
    `begin(config, directory)`, called before the first row with the fields of config.json, nested
    ones under names with dots; and `close()`, called at the end of the run. Of several errors the
    first is logged.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        on_metrics: Callable[[int, dict[str, float]], Any] | None = None,
        *,
        stop: threading.Event,
    ):
        """Takes the resolved run, its directory, a function, and what stops the run.

        Raises:
          ValueError: see `RunConfig.find_logger`.
        """
        self._values, self._directory, self._stop = flat(values_of(config)), directory, stop
        self._has_failed = False
        found = [each for each in (config.find_logger(), on_metrics) if each is not None]
        made = [self._call(each) if isinstance(each, type) else each for each in found]
        self._functions = [each for each in made if callable(each)]

    def __enter__(self) -> "MetricsLogger":
        for each in self._functions:
            if hasattr(each, "begin"):
                self._call(each.begin, self._values, self._directory)
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
        return None
