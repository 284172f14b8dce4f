"""A grid of runs, one for each seed (and task): what is missing is trained (and evaluated).

Each stage of a run is a process of its own (`retrax train`, `retrax evaluate`), so one that fails
leaves the others alone, and a grid continues where it was stopped or killed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..evaluation import read_metrics
from ..evaluation.suites import read_json
from ..training.process import StopEvent, stop_on_signals
from ..training.run_config import RunConfig
from ..training.snapshots import newest_snapshot
from .parsing import tell, words_of

EVALUATION = "evaluation.json"  # in a run directory
_POLL_SECONDS = 0.5
# Ends with the benchmark's process, with a snapshot (Linux; elsewhere the run continues by itself).
_PROGRAM = """
import ctypes, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGINT)
from retrax.command.main import main
sys.exit(main())
"""


class Cell(NamedTuple):
    """A run of the grid, in its directory."""

    config: RunConfig  # not resolved
    directory: Path
    episodes: int  # of its evaluation; 0 for none

    @property
    def name(self) -> str:
        """In tables and names of files."""
        return self.directory.name

    @property
    def score(self) -> float | None:
        """The mean return of the evaluation, or else the last one in training; None before."""
        path = self.directory / EVALUATION
        if path.is_file():
            return float(read_json(path, "mean_return"))
        if self.episodes or not self._is_trained:
            return None
        returns = read_metrics(self.directory)["episode_return"]
        return float(next((value for value in returns[::-1] if np.isfinite(value)), np.nan))

    @property
    def steps(self) -> int:
        """Steps so far, up to the last row of metrics.csv."""
        with contextlib.suppress(ValueError):
            return int(read_metrics(self.directory)["steps"][-1])
        return 0

    @property
    def _is_trained(self) -> bool:
        return (newest_snapshot(self.directory) or 0) >= (self.config.steps or 0)

    def next_stage(self) -> list[str]:
        """The arguments of the command that comes next; the cell has no score yet."""
        if not (self.directory / "config.json").is_file():
            config, directory = self.config, ["--run-directory", str(self.directory)]
            words = words_of(config, RunConfig(agent=config.agent, environment=""))
            return ["train", config.agent, *words, *directory, "--plain"]
        if not self._is_trained:
            return ["train", "--resume", str(self.directory), "--plain"]
        seed, episodes = str(1_000_000 + self.config.seed), str(self.episodes)  # of no run
        return ["evaluate", str(self.directory), "--seed", seed, "--episodes", episodes, "--json"]


class GridState(NamedTuple):
    """How far a grid is: state and steps of each cell, by name, and the seconds left, if known.

    States are "waiting", "training", "evaluating", "complete", "stopped" by its own logger, or the
    last line of what it printed when it failed.
    """

    states: dict[str, str]
    steps: dict[str, int]
    eta: float | None

    @property
    def complete(self) -> int:
        """How many cells are."""
        return list(self.states.values()).count("complete")

    @property
    def failed(self) -> list[str]:
        """Names of the cells that are."""
        usual = ("waiting", "training", "evaluating", "complete", "stopped")
        return [name for name, state in self.states.items() if state not in usual]

    @property
    def left(self) -> str:
        """In words; "" before anything is known."""
        return f" (ETA {timedelta(seconds=np.ceil(self.eta))})" if self.eta else ""


def run_shown(
    cells: Sequence[Cell], *, jobs: int, directory: Path, plain: bool
) -> tuple[GridState, bool]:
    """Runs what is missing, shown on the screen; its end, and whether Ctrl-C stopped it."""
    logs = directory / "logs"
    with stop_on_signals() as stop, _screen(cells, plain=plain) as show:
        end = run_grid(cells, jobs, logs, stop, show)
    for name in end.failed:
        tell(f"{name} failed: {end.states[name]} (full output: {logs / name}.txt)")
    return end, stop.is_set()


def run_grid(
    cells: Sequence[Cell], jobs: int, logs: Path, stop: StopEvent, show: Callable[[GridState], Any]
) -> GridState:
    """Runs what is missing, until `stop` is set; calls `show` about twice a second."""
    logs.mkdir(parents=True, exist_ok=True)
    states = {cell.name: "waiting" if cell.score is None else "complete" for cell in cells}
    steps = {cell.name: cell.steps for cell in cells}
    running: dict[Cell, subprocess.Popen[bytes]] = {}
    started, before = time.monotonic(), sum(steps.values())
    try:
        while True:
            for cell in [cell for cell, process in running.items() if process.poll() is not None]:
                status = running.pop(cell).returncode
                states[cell.name], steps[cell.name] = _end(cell, states, status, logs), cell.steps
            waiting = [cell for cell in cells if states[cell.name] == "waiting"]
            waiting.sort(key=lambda cell: not cell.directory.exists())  # what has begun comes first
            for cell in waiting[: jobs - len(running)]:
                arguments = cell.next_stage()
                running[cell] = _spawn(cell, arguments, logs, jobs)
                states[cell.name] = "evaluating" if arguments[0] == "evaluate" else "training"
            steps.update({cell.name: cell.steps for cell in running})
            done = sum(steps.values()) - before
            unfinished = [cell for cell in cells if states[cell.name] in ("waiting", "training")]
            left = sum((cell.config.steps or 0) - steps[cell.name] for cell in unfinished)
            eta = (time.monotonic() - started) * left / done if done > 0 else None
            progress = GridState(dict(states), dict(steps), eta)
            show(progress)
            if not running or stop.wait(_POLL_SECONDS):
                return progress
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(120)  # for a snapshot
            process.kill()
            process.wait()


def _spawn(cell: Cell, arguments: list[str], logs: Path, jobs: int) -> "subprocess.Popen[bytes]":
    """Starts a stage, in a session of its own: Ctrl-C is passed on once, by this process."""
    cores = {"NPROC": str(max(1, (os.cpu_count() or 1) // jobs))} if jobs > 1 else {}  # of XLA
    log = logs / f"{cell.name}.txt"
    out, mode = (log.with_suffix(".out"), "wb") if arguments[0] == "evaluate" else (log, "ab")
    with out.open(mode) as results, log.open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=results,
            stderr=errors,
            env={**cores, **os.environ},
            start_new_session=True,
        )


def _end(cell: Cell, states: dict[str, str], status: int, logs: Path) -> str:
    """The state of a cell after one of its processes."""
    log = logs / f"{cell.name}.txt"
    if status:
        text = log.read_text(encoding="utf-8", errors="replace").rstrip()
        return text.rpartition("\n")[2] or "no output"
    if states[cell.name] == "evaluating":
        log.with_suffix(".out").replace(cell.directory / EVALUATION)
        return "complete"
    return "waiting" if cell.episodes else "stopped" if cell.score is None else "complete"


@contextlib.contextmanager
def _screen(cells: Sequence[Cell], *, plain: bool) -> Iterator[Callable[[GridState], None]]:
    """Shows progress: a live table in a terminal, a line for each event elsewhere."""
    console = Console(stderr=True)
    if console.is_terminal and not plain:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda now: live.update(_table(cells, now), refresh=True)
        return
    before: dict[str, str] = {}

    def lines(now: GridState) -> None:
        for cell in cells:
            state = now.states[cell.name]
            if state not in ("waiting", before.get(cell.name)):
                score = "" if state != "complete" else f", return {cell.score:.6g}"
                tell(f"{cell.name}: {state}{score}{now.left}")
            before[cell.name] = state

    yield lines


def _table(cells: Sequence[Cell], now: GridState) -> Table:
    title = f"{now.complete} of {len(cells)} runs{now.left}"
    table = Table("run", "state", title=title, title_justify="left")
    for column in ("steps", "return"):
        table.add_column(column, justify="right")
    for cell in cells:
        score, steps = cell.score, f"{now.steps[cell.name]}/{cell.config.steps}"
        shown = "" if score is None else f"{score:.6g}"
        table.add_row(cell.name, now.states[cell.name], steps, shown)
    return table
