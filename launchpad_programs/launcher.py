"""Runs a program: starts its nodes, watches them, and ends them in the right order."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from ..evaluation.plots import read_metrics
from ..run_directory.log import close_log, setup_log
from ..run_directory.metrics_logger import MetricsLogger
from ..run_directory.snapshots import newest_snapshot
from ..runtime.intervals import next_multiple
from ..runtime.stop import StopEvent, stop_on_signals
from .config import ProgramConfig
from .engines.engine import Engine, RunningNode
from .kinds import kind_of
from .live_table import LiveTable
from .status import forget, read_status

ExecutionMode = Literal["local_mp", "local_mt"]

_POLL_SECONDS = 0.1
_STATUS_SECONDS = 0.5
_STOP_SECONDS = 3.0  # for processes whose end writes nothing; then they are killed
_SAVE_SECONDS = 600.0  # for all others, however busy the machine is; a second Ctrl-C ends them
_ENDED_EARLY = "was killed by SIGTERM"


class Ending(NamedTuple):
    """How the nodes of a program ended.

    Attributes:
      failed: the node that failed and how, "" if none did.
      traceback: of the failed node.
    """

    failed: str
    traceback: str


class LaunchSummary(NamedTuple):
    """How a program ended.

    Attributes:
      directory: the run directory.
      steps: transitions taken, earlier parts of the run included.
      updates: updates of the learner, earlier parts of the run included.
      finished: whether the last step was taken.
      failed: whether a node failed; `log.txt` of the run has its traceback.
      snapshot: steps of the newest snapshot, None if there is none.
    """

    directory: Path
    steps: int
    updates: int
    finished: bool
    failed: bool
    snapshot: int | None


def run_program(
    config: ProgramConfig,
    engine: Engine,
    *,
    mode: ExecutionMode,
    plain: bool,
    notes: Sequence[str],
    warnings: Sequence[str] = (),
) -> LaunchSummary:
    """Runs a program in an existing run directory to its end, or until a signal stops it.

    Args:
      config: what to run.
      engine: starts the nodes, and may start them again.
      mode: local_mp: every node is a process. local_mt: every node is a thread of this process.
      plain: log lines instead of a live table.
      notes: for the log.
      warnings: for the log.

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
                seconds = _STOP_SECONDS if mode == "local_mp" else _SAVE_SECONDS
                ending = supervise(
                    nodes, finished=progress.finished, stop=stop, stop_seconds=seconds
                )
            progress.log_rows()  # the last one
        if ending.failed:
            log.error(f"{ending.failed}.\n{ending.traceback}".rstrip())
        summary = summarise(config, failed=bool(ending.failed))
        how = "Finished" if summary.finished else "Stopped"
        log.info(f"{how} at {summary.steps} steps and {summary.updates} updates.")
        return summary
    finally:
        close_log(log)


def supervise(
    nodes: Sequence[RunningNode],
    *,
    finished: Callable[[], bool],
    stop: StopEvent,
    stop_seconds: float = _STOP_SECONDS,
    save_seconds: float = _SAVE_SECONDS,
) -> Ending:
    """Waits until the run is finished, stopped or failed, and then ends all nodes.

    Args:
      nodes: of the program.
      finished: whether the run has reached its last step; called often.
      stop: whether a stop was requested.
      stop_seconds: how long the end of nodes may take that write nothing.
      save_seconds: how long that of the others may take, which save snapshots, or the last row.
    """
    try:
        failed = _wait(nodes, finished, stop)
        traceback = failed.traceback() if failed else ""
        how = f"{failed.name} {_how(failed)}" if failed else ""
        first = [node for node in nodes if not kind_of(node.name).ends_last]
        saving = [node for node in first if kind_of(node.name).saves]
        for node in first:
            node.stop()
        _join([node for node in first if node not in saving], stop_seconds)
        _join(saving, save_seconds)
        # A process that is stopped while it imports has nothing to save, and just ends.
        wrong = [node for node in saving if node.ended() not in ("done", _ENDED_EARLY)]
        if wrong and not failed:
            how = f"{wrong[0].name} {_how(wrong[0])}"
            traceback = wrong[0].traceback()
        for node in nodes:
            node.stop()
        _join(nodes, save_seconds)
    finally:
        for node in nodes:
            node.stop()
        _join(nodes, _STOP_SECONDS)
    return Ending(how, traceback)


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
            for row in zip(*(values.tolist() for values in columns.values()), strict=True):
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


def summarise(config: ProgramConfig, *, failed: bool) -> LaunchSummary:
    """How a program ended, from its run directory."""
    status = read_status(config.directory)
    steps, updates = status.get("steps", 0), status.get("updates", 0)
    finished = steps >= config.schedule[0] and not failed
    newest = newest_snapshot(config.directory)
    return LaunchSummary(config.directory, steps, updates, finished, failed, newest)
