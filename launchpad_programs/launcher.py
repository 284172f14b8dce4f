"""Runs a program: starts its nodes, watches and shows them, and ends them in the right order."""

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live

from ..replay.interface import REAL, Clock
from ..training.process import FILE_ONLY, StopEvent, run_log, stop_on_signals
from ..training.recorder import shown_returns
from ..training.snapshots import newest_snapshot
from .config import RESTARTS, STATUS, ProgramConfig, read_json
from .kinds import kind_of
from .node import POLL_SECONDS, SAVE_SECONDS, Engine, EngineLost, RunningNode

CALLER = "RETRAX_CALLER"  # the process of `retrax.launch`, without which the program ends
_STOP_SECONDS = 3.0  # for processes whose end writes nothing; then they are killed
_LAST_SECONDS = 120.0  # for those that the others needed, which write a row and a status at most
_ENDED_EARLY = "was killed by SIGTERM"
_STATUS_SECONDS = 0.5
_LINE_SECONDS = 10.0  # between log lines, at least
_log = logging.getLogger("retrax")


class LaunchSummary(NamedTuple):
    """How a program ended; steps and updates include earlier parts of the run."""

    directory: Path
    steps: int  # transitions taken
    updates: int  # of the learner
    finished: bool  # whether the last step was taken
    failed: bool  # whether a node failed; `log.txt` of the run has its traceback
    snapshot: int | None  # steps of the newest one


def run_program(
    config: ProgramConfig,
    engine: Engine,
    *,
    name: str,
    plain: bool,
    notes: Sequence[str],
    warnings: Sequence[str] = (),
) -> LaunchSummary:
    """Runs a program to its end, or until a signal stops it; `name` as `EngineOptions.name`."""
    has_processes, caller = name != "threads", os.environ.pop(CALLER, None)
    with run_log(config.directory) as log:
        for file in (STATUS, RESTARTS):  # of a program that has ended
            (config.directory / file).unlink(missing_ok=True)
        for note in notes:
            log.info(note)
        for warning in warnings:
            log.warning(warning)
        with stop_on_signals() as stop:
            try:
                nodes = engine(config)
                where = f"; their output is in {config.directory}/logs" if has_processes else ""
                log.info(f"{len(nodes)} nodes started{where}.")
                with StatusView(config, nodes, plain=plain, notes=has_processes) as view:
                    view.caller = caller
                    patience = _STOP_SECONDS if has_processes else SAVE_SECONDS
                    failure = supervise(nodes, view.finished, stop, stop_seconds=patience)
                view.read()  # what the end had to say
            except EngineLost as lost:
                failure = str(lost)
        if failure:
            log.error(failure)
        summary = summarise(config, failed=bool(failure))
        how = "Finished" if summary.finished else "Stopped"
        log.info(f"{how} at {summary.steps} steps and {summary.updates} updates.")
        return summary


def supervise(
    nodes: Sequence[RunningNode],
    finished: Callable[[], bool],
    stop: StopEvent,
    *,
    stop_seconds: float = _STOP_SECONDS,
    clock: Clock = REAL,
) -> str:
    """Waits for a run's end, then ends all nodes; says which one failed and how, "" if none did."""
    try:
        failure = _wait(nodes, finished, stop)
        first = [node for node in nodes if not kind_of(node.name).ends_last]
        saving = [node for node in first if kind_of(node.name).saves]
        for node in first:
            node.stop()
        _join([node for node in first if node not in saving], stop_seconds, clock)
        _join(saving, SAVE_SECONDS, clock)
        # A process that is stopped while it imports has nothing to save, and just ends.
        wrong = [node for node in saving if node.ended() not in ("done", _ENDED_EARLY)]
        if wrong and not failure:
            failure = _failure(wrong[0])
        for node in nodes:
            node.stop()
        _join(nodes, _LAST_SECONDS, clock)
    finally:
        for node in nodes:
            node.stop()
        _join(nodes, _STOP_SECONDS, clock)
    return failure


def _wait(nodes: Sequence[RunningNode], finished: Callable[[], bool], stop: StopEvent) -> str:
    """How a node failed; "" if the run is finished or stopped."""
    while not stop.wait(POLL_SECONDS) and not finished():
        ended = [node for node in nodes if node.ended() and not node.revive()]
        if ended:
            # A terminal's signal goes to all processes: the nodes may end before it is seen here.
            return "" if stop.wait(POLL_SECONDS) else _failure(ended[0])
    return ""


def _failure(node: RunningNode) -> str:
    how = "ended too early" if node.ended() == "done" else node.ended()
    return f"{node.name} {how}.\n{node.traceback()}".rstrip()


def _join(nodes: Sequence[RunningNode], seconds: float, clock: Clock) -> None:
    """Waits for nodes to end, and kills those that do not."""
    deadline = clock.monotonic() + seconds
    while any(not node.ended() for node in nodes) and clock.monotonic() < deadline:
        clock.sleep(POLL_SECONDS / 2)
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


class StatusView(contextlib.ExitStack):
    """Follows status.json: a live line in a terminal, lines of the log elsewhere."""

    def __init__(
        self, config: ProgramConfig, nodes: Sequence[RunningNode], *, plain: bool, notes: bool
    ):
        """Log lines if `plain`; with `notes` the warnings of the counter are logged here."""
        super().__init__()
        self._directory, self._nodes = config.directory, nodes
        self._notes, self._told = notes, set[str]()
        console = Console(stderr=True, markup=False)
        self._live: Live | None = None
        if console.is_terminal and not plain:
            self._live = self.enter_context(Live(console=console, auto_refresh=False))
        self._next, self._last_line = 0.0, REAL.monotonic()
        self._change, self._is_finished = "", False  # what the last line was about
        self.caller: str | None = None  # see `CALLER`

    def finished(self) -> bool:
        """Whether the run has taken its last step, or a logger or the caller's end ends it."""
        if (now := REAL.monotonic()) >= self._next:
            self._next = now + _STATUS_SECONDS
            status = self.read()
            self._is_finished = status.get("phase") == "finished" or status.get("stop", False)
            self.show(status)
        return self._is_finished or self.caller not in (None, str(os.getppid()))

    def read(self) -> dict[str, Any]:
        """The status; logs the warnings of the counter's process that are new, if it is another."""
        status = read_json(self._directory / STATUS)
        for note, is_hidden in status.get("notes", []):
            if self._notes and note not in self._told:
                self._told.add(note)
                _log.warning(note, extra={FILE_ONLY: is_hidden})
        return status

    def show(self, status: Mapping[str, Any]) -> None:
        """Updates the line; or logs one, unless there was one just now about the same."""
        now, phase = REAL.monotonic(), status.get("phase", "starting")
        is_starting = phase == "starting"
        text = _starting(status, self._nodes) if is_starting else line(status)
        if self._live:
            self._live.update(text, refresh=True)
            return
        change = text if is_starting else phase
        is_recent = is_starting or now - self._last_line < _LINE_SECONDS
        if change != self._change or not is_recent:
            self._last_line, self._change = now, change
            _log.info(text)


def _starting(status: Mapping[str, Any], running: Sequence[RunningNode]) -> str:
    """How nodes ended, or what they reported, until the clock runs."""
    states: dict[str, list[str]] = {}
    for node in running:
        reported = status.get("nodes", {}).get(node.name, {}).get("state", "starting")
        states.setdefault(node.ended() or reported, []).append(node.name)
    return "starting | " + " | ".join(f"{', '.join(names)}: {s}" for s, names in states.items())


def line(status: Mapping[str, Any]) -> str:
    """The state of the run in one line."""
    nodes = [(kind_of(name), values) for name, values in status["nodes"].items()]
    actors = [values for kind, values in nodes if kind.acts]
    others = [values for kind, values in nodes if not kind.acts]
    rows = sum(values.get("replay_rows", 0) for _, values in nodes)
    shares = [x["idle_share"] for kind, x in nodes if kind.publishes and "idle_share" in x]
    idle = f"{shares[0]:.0%}" if shares else "-"
    restarts, eta = sum(status.get("restarts", {}).values()), status["eta_seconds"]
    return (
        f"{status['phase']} | {status['steps']}/{status['last_step']} steps | "
        f"{status['steps_per_second']:.0f} steps/s | "
        f"{status['updates']} updates, {status['updates_per_second']:.1f}/s, idle {idle} | "
        f"replay {rows} rows | "
        + f"staleness {_mean(actors, 'staleness'):.3g} | ".replace("nan", "-")
        + f"{shown_returns(_mean(actors, 'return'), _mean(others, 'return'))} | "
        + (f"restarts: {restarts} | " if restarts else "")
        + f"ETA {'-' if eta is None else timedelta(seconds=round(eta))}"
    )


def _mean(nodes: Sequence[Mapping[str, Any]], name: str) -> float:
    """Of a value of those nodes that have it; NaN if none has."""
    values = [node[name] for node in nodes if name in node]
    return sum(values) / len(values) if values else float("nan")
