"""Runs a program: starts its nodes, watches them, and ends them in the right order."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..replay.reverb import Checkpoints
from ..runtime.log import close_log, setup_log
from ..runtime.numbered_folders import newest_snapshot
from ..runtime.stop import StopEvent, stop_on_signals
from .config import ProgramConfig
from .live_table import LiveTable
from .process import SAVING, Processes, Threads
from .program import make_program, process_env
from .status import forget, read_status
from .workers import Worker, start_processes, start_threads

if TYPE_CHECKING:
    from .ray_engine import RayEngine

ExecutionMode = Literal["local_mp", "local_mt"]

_POLL_SECONDS = 0.1
_STATUS_SECONDS = 0.5
_STOP_SECONDS = 3.0  # for nodes that save nothing large
_SAVE_SECONDS = 600.0  # for nodes whose replay may be large; a second Ctrl-C ends them
_ENDED_EARLY = "was killed by SIGTERM"
_LAST = ("counter", "replay")  # labels that the others need to the end


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
    mode: ExecutionMode,
    *,
    plain: bool,
    notes: Sequence[str],
    engine: "RayEngine | None" = None,
) -> Outcome:
    """Runs a program in an existing run directory to its end, or until a signal stops it.

    Args:
      config: what to run.
      mode: local_mp: every node is a process. local_mt: every node is a thread of this process.
      plain: log lines instead of a live table.
      notes: for the log.
      engine: where the nodes run, and are restarted; None for Launchpad's, and this machine.

    Raises:
      ValueError: the Reverb checkpoint of a resumed run is missing or incomplete.
    """
    log = setup_log(config.directory)
    try:
        forget(config.directory)
        if config.keeps_sequences:
            Checkpoints(config.directory).prepare(config.resumed_at)
        for note in notes:
            log.info(note)
        with stop_on_signals() as stop:
            workers = engine.start(config) if engine else _start(config, mode)
            where = f"; their output is in {config.directory}/logs" if mode == "local_mp" else ""
            log.info(f"{len(workers)} nodes started{where}.")
            with LiveTable(plain=plain) as table:
                finished = _Progress(config, workers, table, log).finished
                ending = supervise(workers, finished=finished, stop=stop)
        return _outcome(config, ending, log)
    finally:
        close_log(log)


def supervise(
    workers: Sequence[Worker],
    *,
    finished: Callable[[], bool],
    stop: StopEvent,
    save_seconds: float = _SAVE_SECONDS,
) -> Ending:
    """Waits until the run is finished, stopped or failed, and then ends all nodes.

    Args:
      workers: the nodes.
      finished: whether the run has reached its last step; called often.
      stop: whether a stop was requested.
      save_seconds: how long snapshots may take.
    """
    try:
        failed = _wait(workers, finished, stop)
        traceback = failed.traceback() if failed else ""
        how = f"{failed.name} {_how(failed)}" if failed else ""
        first = [worker for worker in workers if _label(worker) not in _LAST]
        saving = [worker for worker in first if _label(worker) in SAVING]
        for worker in first:
            worker.stop()
        _join([worker for worker in first if worker not in saving], _STOP_SECONDS)
        _join(saving, save_seconds)
        complete = all(worker.ended() == "done" for worker in saving)
        # A process that is stopped while it imports has nothing to save, and just ends.
        wrong = [worker for worker in saving if worker.ended() not in ("done", _ENDED_EARLY)]
        if wrong and not failed:
            how = f"{wrong[0].name} {_how(wrong[0])}"
            traceback = wrong[0].traceback()
    finally:
        for worker in workers:
            worker.stop()
        _join(workers, _STOP_SECONDS)
    return Ending(how, traceback, complete)


def _start(config: ProgramConfig, mode: ExecutionMode) -> Sequence[Worker]:
    if mode == "local_mt":
        threads = Threads()
        return start_threads(make_program(config, threads), threads)
    program = make_program(config, Processes(os.getpid()))
    return start_processes(program, process_env(config), config.directory / "logs")


class _Progress:
    """Reads the status, and shows it."""

    def __init__(
        self,
        config: ProgramConfig,
        workers: Sequence[Worker],
        table: LiveTable,
        log: logging.Logger,
    ):
        self._directory, self._workers = config.directory, workers
        self._table, self._log = table, log
        self._next = 0.0
        self._finished = self._is_advised = False

    def finished(self) -> bool:
        """Whether the run has reached its last step."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _STATUS_SECONDS
            status = read_status(self._directory)
            self._finished = status.get("phase") == "finished"
            ended = {worker.name: how for worker in self._workers if (how := worker.ended())}
            if line := self._table.show(status, ended):
                self._log.info(line)
            nodes = status.get("nodes", {}).values()
            advice = next((node["advice"] for node in nodes if "advice" in node), None)
            if advice and not self._is_advised:
                self._log.warning(advice)
                self._is_advised = True
        return self._finished


def _wait(
    workers: Sequence[Worker], finished: Callable[[], bool], stop: StopEvent
) -> Worker | None:
    """The node that failed; None if the run is finished or stopped."""
    while not stop.wait(_POLL_SECONDS) and not finished():
        ended = [worker for worker in workers if worker.ended() and not worker.revive()]
        if ended:
            # A terminal's signal goes to all processes: the nodes may end before it is seen here.
            return None if stop.wait(_POLL_SECONDS) else ended[0]
    return None


def _label(worker: Worker) -> str:
    return worker.name.partition("/")[0]


def _how(worker: Worker) -> str:
    how = worker.ended()
    return "ended too early" if how == "done" else how


def _join(workers: Sequence[Worker], seconds: float) -> None:
    """Waits for nodes to end, and kills those that do not."""
    deadline = time.monotonic() + seconds
    while any(not worker.ended() for worker in workers) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS / 2)
    for worker in workers:
        if not worker.ended():
            worker.kill()


def _outcome(config: ProgramConfig, ending: Ending, log: logging.Logger) -> Outcome:
    status = read_status(config.directory)
    steps, updates = status.get("steps", 0), status.get("updates", 0)
    finished = steps >= config.schedule[0] and not ending.failed
    if ending.failed:
        log.error(f"{ending.failed}.\n{ending.traceback}".rstrip())
    log.info(f"{'Finished' if finished else 'Stopped'} at {steps} steps and {updates} updates.")
    return Outcome(status, newest_snapshot(config.directory), finished, ending)
