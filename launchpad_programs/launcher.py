"""Runs a program: starts its nodes, watches them, and ends them in the right order."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ..evaluation.plots import read_metrics
from ..runtime.intervals import next_multiple
from ..runtime.log import close_log, setup_log
from ..runtime.metrics_logger import MetricsLogger
from ..runtime.numbered_folders import newest_snapshot
from ..runtime.stop import StopEvent, stop_on_signals
from .config import ProgramConfig
from .engines.engine import Engine, RunningNode
from .kinds import kind_of
from .live_table import LiveTable
from .status import forget, read_status

ExecutionMode = Literal["local_mp", "local_mt"]

_POLL_SECONDS = 0.1
_STATUS_SECONDS = 0.5
_STOP_SECONDS = 3.0  # for nodes that save nothing large
_SAVE_SECONDS = 600.0  # for nodes whose replay may be large; a second Ctrl-C ends them
_ENDED_EARLY = "was killed by SIGTERM"


class Ending(NamedTuple):
    """How the nodes of a program ended.

    Attributes:
      failed: the node that failed and how, "" if none did.
      traceback: of the failed node.
      complete: whether those nodes ended without an error that save snapshots.
    """

    failed: str
    traceback: str
    complete: bool


class Outcome(NamedTuple):
    """How a run ended.

    Attributes:
      status: the last one.
      snapshot: steps of the newest snapshot, None if there is none.
      finished: whether the last step was taken.
      ending: of the nodes.
    """

    status: Mapping[str, Any]
    snapshot: int | None
    finished: bool
    ending: Ending


def run_program(
    config: ProgramConfig,
    engine: Engine,
    *,
    mode: ExecutionMode,
    plain: bool,
    notes: Sequence[str],
    warnings: Sequence[str] = (),
) -> Outcome:
    """Runs a program in an existing run directory to its end, or until a signal stops it.

    Args:
      config: what to run.
      engine: starts the nodes, and may start them again.
      mode: local_mp: every node is a process. local_mt: every node is a thread of this process.
      plain: log lines instead of a live table.
      notes: for the log.
      warnings: likewise.

    Raises:
      ValueError: the state of a resumed run cannot be read.
    """
    log = setup_log(config.directory)
    try:
        forget(config.directory)
        for note in notes:
            log.info(note)
        for warning in warnings:
            log.warning(warning)
        with (
            stop_on_signals() as stop,
            MetricsLogger(config.run, config.directory, stop=stop) as logger,
        ):
            nodes = engine.start(config)
            where = f"; their output is in {config.directory}/logs" if mode == "local_mp" else ""
            log.info(f"{len(nodes)} nodes started{where}.")
            with LiveTable(plain=plain) as table:
                progress = _Progress(config, nodes, table, logger, log)
                ending = supervise(nodes, finished=progress.finished, stop=stop)
            progress.log_rows()  # the last one
        return _outcome(config, ending, log)
    finally:
        close_log(log)


def supervise(
    nodes: Sequence[RunningNode],
    *,
    finished: Callable[[], bool],
    stop: StopEvent,
    save_seconds: float = _SAVE_SECONDS,
) -> Ending:
    """Waits until the run is finished, stopped or failed, and then ends all nodes.

    Args:
      nodes: of the program.
      finished: whether the run has reached its last step; called often.
      stop: whether a stop was requested.
      save_seconds: how long snapshots may take.
    """
    try:
        failed = _wait(nodes, finished, stop)
        traceback = failed.traceback() if failed else ""
        how = f"{failed.name} {_how(failed)}" if failed else ""
        first = [node for node in nodes if not kind_of(node.name).ends_last]
        saving = [node for node in first if kind_of(node.name).saves]
        for node in first:
            node.stop()
        _join([node for node in first if node not in saving], _STOP_SECONDS)
        _join(saving, save_seconds)
        complete = all(node.ended() == "done" for node in saving)
        # A process that is stopped while it imports has nothing to save, and just ends.
        wrong = [node for node in saving if node.ended() not in ("done", _ENDED_EARLY)]
        if wrong and not failed:
            how = f"{wrong[0].name} {_how(wrong[0])}"
            traceback = wrong[0].traceback()
    finally:
        for node in nodes:
            node.stop()
        _join(nodes, _STOP_SECONDS)
    return Ending(how, traceback, complete)


class _Progress:
    """Reads status and metrics; shows the one, and gives the other to loggers."""

    def __init__(
        self,
        config: ProgramConfig,
        nodes: Sequence[RunningNode],
        table: LiveTable,
        logger: MetricsLogger,
        log: logging.Logger,
    ):
        self._directory, self._nodes = config.directory, nodes
        self._table, self._logger, self._log = table, logger, log
        self._logged_at, self._log_every = config.resumed_at or 0, config.schedule[1]
        self._next = 0.0
        self._finished = self._is_advised = False

    def finished(self) -> bool:
        """Whether the run has reached its last step."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _STATUS_SECONDS
            status = read_status(self._directory)
            self._finished = status.get("phase") == "finished"
            started = status.get("phase", "starting") != "starting"  # older rows are dropped then
            if started and status["steps"] >= next_multiple(self._logged_at, self._log_every):
                self.log_rows()
            if line := self._table.show(status, self._nodes):
                self._log.info(line)
            nodes = status.get("nodes", {}).values()
            advice = next((node["advice"] for node in nodes if "advice" in node), None)
            if advice and not self._is_advised:
                self._log.warning(advice)
                self._is_advised = True
        return self._finished

    def log_rows(self) -> None:
        """Gives new rows of metrics.csv to the run's logger."""
        if not self._logger.is_used:
            return
        with contextlib.suppress(ValueError):  # no rows yet
            columns = read_metrics(self._directory)
            for row in zip(*columns.values(), strict=True):
                found = {k: v for k, v in zip(columns, row, strict=True) if not math.isnan(v)}
                if (steps := int(found.pop("steps"))) > self._logged_at:
                    self._logger.write(steps, found)
                    self._logged_at = steps


def _wait(
    nodes: Sequence[RunningNode], finished: Callable[[], bool], stop: StopEvent
) -> RunningNode | None:
    """The node that failed; None if the run is finished or stopped."""
    while not stop.wait(_POLL_SECONDS) and not finished():
        ended = [node for node in nodes if node.ended() and not node.revive()]
        if ended:
            # A terminal's signal goes to all processes: the nodes may end before it is seen here.
            return None if stop.wait(_POLL_SECONDS) else ended[0]
    return None


def _how(node: RunningNode) -> str:
    how = node.ended()
    return "ended too early" if how == "done" else how


def _join(nodes: Sequence[RunningNode], seconds: float) -> None:
    """Waits for nodes to end, and kills those that do not."""
    deadline = time.monotonic() + seconds
    while any(not node.ended() for node in nodes) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS / 2)
    for node in nodes:
        if not node.ended():
            node.kill()


def _outcome(config: ProgramConfig, ending: Ending, log: logging.Logger) -> Outcome:
    status = read_status(config.directory)
    steps, updates = status.get("steps", 0), status.get("updates", 0)
    finished = steps >= config.schedule[0] and not ending.failed
    if ending.failed:
        log.error(f"{ending.failed}.\n{ending.traceback}".rstrip())
    log.info(f"{'Finished' if finished else 'Stopped'} at {steps} steps and {updates} updates.")
    return Outcome(status, newest_snapshot(config.directory), finished, ending)
