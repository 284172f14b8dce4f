"""Runs a program from its start to its end, whatever ends it."""

import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..experiments.loggers import close_log, setup_log
from ..experiments.snapshots import Snapshots
from .config import ProgramConfig
from .lifecycle import Processes, Threads
from .live import View
from .parts import Parts
from .program import environments, make_program
from .reports import STATUS, read_status
from .supervisor import Ending, Worker, signals, start_processes, start_threads, supervise

_SAVE_SECONDS = 600.0  # a large replay takes its time; a second Ctrl-C ends that
_LOOK_SECONDS = 0.5


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
    config: ProgramConfig, launch: str, *, plain: bool, notes: Sequence[str]
) -> Outcome:
    """Runs the program in an existing run directory.

    Args:
      config: what to run.
      launch: `local_mp` or `local_mt`.
      plain: log lines in place of a table.
      notes: for the log.
    """
    log = setup_log(config.directory)
    try:
        (config.directory / STATUS).unlink(missing_ok=True)
        if (checkpoints := Parts(config).checkpoints) is not None:
            checkpoints.prepare(config.resumed_at)
        for note in notes:
            log.info(note)
        with signals() as asked:
            workers = _start(config, launch)
            where = f"; their output is in {config.directory}/logs" if launch == "local_mp" else ""
            log.info(f"{len(workers)} nodes started{where}.")
            with View(plain=plain) as view:
                watch = _Watch(config, workers, view, log)
                ending = supervise(
                    workers, finished=watch.finished, asked=asked, save_seconds=_SAVE_SECONDS
                )
        return _outcome(config, ending, log)
    finally:
        close_log(log)


def _start(config: ProgramConfig, launch: str) -> Sequence[Worker]:
    if launch == "local_mt":
        threads = Threads()
        return start_threads(make_program(config, threads), threads)
    program = make_program(config, Processes(os.getpid()))
    return start_processes(program, environments(config), config.directory / "logs")


class _Watch:
    """Looks at the status now and then, and shows it."""

    def __init__(
        self, config: ProgramConfig, workers: Sequence[Worker], view: View, log: logging.Logger
    ):
        self._directory, self._workers, self._view, self._log = (
            config.directory,
            workers,
            view,
            log,
        )
        self._next = 0.0
        self._finished = False

    def finished(self) -> bool:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _LOOK_SECONDS
            status = read_status(self._directory)
            self._finished = status.get("phase") == "finished"
            ended = {w.name: how for w in self._workers if (how := w.ended())}
            line = self._view.show(status, ended)
            if line:
                self._log.info(line)
        return self._finished


def _outcome(config: ProgramConfig, ending: Ending, log: logging.Logger) -> Outcome:
    status = read_status(config.directory)
    finished = status.get("steps", 0) >= config.run.steps and not ending.failed
    snapshot = newest_snapshot(config)
    if ending.failed:
        log.error(f"{ending.failed}.\n{ending.traceback}".rstrip())
    steps, updates = status.get("steps", 0), status.get("updates", 0)
    log.info(f"{'Finished' if finished else 'Stopped'} at {steps} steps and {updates} updates.")
    return Outcome(status, snapshot, finished, ending)


def newest_snapshot(config: ProgramConfig) -> int | None:
    """Steps of the newest snapshot, None if there is none."""
    try:
        snapshots = Snapshots(config.directory, writable=False)
    except ValueError:
        return None
    with contextlib.closing(snapshots):
        return max(snapshots.steps(), default=None)
