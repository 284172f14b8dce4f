"""Runs a program: starts its nodes, watches them, and ends them in the right order."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..training.log import close_log, setup_log
from ..training.snapshots import newest_snapshot
from ..training.stop import StopEvent, stop_on_signals
from .config import RESTARTS, STATUS, ProgramConfig, read_json
from .engines.engine import Engine, RunningNode
from .kinds import kind_of
from .peers import SAVE_SECONDS
from .progress import Progress

_POLL_SECONDS = 0.1
_STOP_SECONDS = 3.0  # for processes whose end writes nothing; then they are killed
_LAST_SECONDS = 120.0  # for those that the others needed, which write a row and a status at most
_ENDED_EARLY = "was killed by SIGTERM"


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
    mode: str,
    plain: bool,
    notes: Sequence[str],
    warnings: Sequence[str] = (),
) -> LaunchSummary:
    """Runs a program in an existing run directory to its end, or until a signal stops it.

    `mode` is `EngineOptions.launch`; `notes` and `warnings` are logged first.

    Raises:
      ValueError: the state of a resumed run cannot be read.
    """
    log = setup_log(config.directory)
    try:
        for name in (STATUS, RESTARTS):  # of a program that has ended
            (config.directory / name).unlink(missing_ok=True)
        for note in notes:
            log.info(note)
        for warning in warnings:
            log.warning(warning)
        with stop_on_signals() as stop:
            nodes = engine(config)
            where = f"; their output is in {config.directory}/logs" if mode == "local_mp" else ""
            log.info(f"{len(nodes)} nodes started{where}.")
            with Progress(config, nodes, plain=plain, notes=mode == "local_mp") as progress:
                seconds = _STOP_SECONDS if mode == "local_mp" else SAVE_SECONDS
                failure = supervise(
                    nodes, finished=progress.finished, stop=stop, stop_seconds=seconds
                )
            progress.tell()  # what the end had to say
        if failure:
            log.error(failure)
        summary = summarise(config, failed=bool(failure))
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
    save_seconds: float = SAVE_SECONDS,
    last_seconds: float = _LAST_SECONDS,
) -> str:
    """Waits until the run is finished, stopped or failed, and then ends all nodes.

    Args:
      nodes: of the program.
      finished: whether the run has reached its last step; called often.
      stop: whether a stop was requested.
      stop_seconds: how long the end of nodes may take that write nothing.
      save_seconds: how long that of those may take which save snapshots.
      last_seconds: how long that of the last ones may take, the counter's with the last row.

    Returns:
      Which node failed and how, with its traceback; "" if none did.
    """
    try:
        failed = _wait(nodes, finished, stop)
        failure = _failure(failed) if failed is not None else ""
        first = [node for node in nodes if not kind_of(node.name).ends_last]
        saving = [node for node in first if kind_of(node.name).saves]
        for node in first:
            node.stop()
        _join([node for node in first if node not in saving], stop_seconds)
        _join(saving, save_seconds)
        # A process that is stopped while it imports has nothing to save, and just ends.
        wrong = [node for node in saving if node.ended() not in ("done", _ENDED_EARLY)]
        if wrong and not failure:
            failure = _failure(wrong[0])
        for node in nodes:
            node.stop()
        _join(nodes, last_seconds)
    finally:
        for node in nodes:
            node.stop()
        _join(nodes, _STOP_SECONDS)
    return failure


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


def _failure(node: RunningNode) -> str:
    how = node.ended()
    how = "ended too early" if how == "done" else how
    return f"{node.name} {how}.\n{node.traceback()}".rstrip()


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
    status = read_json(config.directory / STATUS)
    steps, updates = status.get("steps", 0), status.get("updates", 0)
    finished = steps >= config.run.schedule[0] and not failed
    newest = newest_snapshot(config.directory)
    return LaunchSummary(config.directory, steps, updates, finished, failed, newest)
