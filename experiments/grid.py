"""A grid of runs, one for each seed (and task): what is missing is trained (and evaluated).

Each stage of a run is a process of its own (`retrax train`, `retrax evaluate`), so one that fails
leaves the others alone, and a grid continues where it was stopped or killed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ..evaluation import read_metrics
from ..evaluation.suites import Task
from ..run_directory.config_file import read_config
from ..run_directory.snapshots import newest_snapshot
from ..runtime.devices import shared_programs
from ..runtime.run_config import RunConfig
from ..runtime.stop import StopEvent
from .parsing import words_of

EVALUATION = "evaluation.json"  # in a run directory
_EVALUATION_SEED = 1_000_000  # of no training run
_POLL_SECONDS = 0.5
_LAST_SECONDS = 120  # for a snapshot
# Ends with the benchmark's process, with a snapshot (Linux; elsewhere the run continues by itself).
_PROGRAM = """
import ctypes, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGINT)
from retrax.experiments.commands.main import main
sys.exit(main())
"""


class Cell(NamedTuple):
    """A run of the grid.

    Attributes:
      task: its task, in a benchmark.
      config: its run, not resolved.
      directory: its run directory.
      episodes: of its evaluation; 0 for none.
    """

    task: Task | None
    config: RunConfig
    directory: Path
    episodes: int

    @property
    def name(self) -> str:
        """In tables and names of files."""
        return self.directory.name

    @property
    def score(self) -> float | None:
        """The mean return of the evaluation, or else the last one in training; None before."""
        path = self.directory / EVALUATION
        if path.is_file():
            return float(json.loads(path.read_text())["mean_return"])
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
        seed, episodes = str(_EVALUATION_SEED + self.config.seed), str(self.episodes)
        return ["evaluate", str(self.directory), "--seed", seed, "--episodes", episodes, "--json"]

    def check(self) -> None:
        """Refuses a run directory of another run.

        Raises:
          ValueError: names what differs.
        """
        if not (self.directory / "config.json").is_file():
            return
        found = read_config(self.directory)
        for name, wanted in vars(self.config).items():
            is_ = getattr(found, name)
            if is_ != wanted and wanted is not None and name != "search_path":
                raise ValueError(
                    f"{self.directory} was run with {name} {is_}, not {wanted}: choose another "
                    "--directory."
                )


class Progress(NamedTuple):
    """How far a grid is.

    Attributes:
      states: of each cell, by name: "waiting", "training", "evaluating", "complete", "stopped" by
        its own logger, or the last line of what it printed when it failed.
      steps: of each cell, by name: those of its training so far.
      eta: seconds that are left, by the steps so far; None before there are any.
    """

    states: dict[str, str]
    steps: dict[str, int]
    eta: float | None

    @property
    def complete(self) -> int:
        """How many cells are complete."""
        return list(self.states.values()).count("complete")

    @property
    def failed(self) -> list[str]:
        """Names of cells that failed."""
        usual = ("waiting", "training", "evaluating", "complete", "stopped")
        return [name for name, state in self.states.items() if state not in usual]


class _Process(NamedTuple):
    process: "subprocess.Popen[bytes]"
    output: IO[bytes]
    log: Path
    evaluates: bool


def run_grid(
    cells: Sequence[Cell],
    *,
    jobs: int,
    logs: Path,
    stop: StopEvent,
    show: Callable[[Progress], None],
) -> Progress:
    """Runs what is missing.

    Args:
      cells: the grid, in the order in which they begin.
      jobs: processes at a time, at least 1.
      logs: the folder of their output.
      stop: ends them, with snapshots.
      show: called about twice a second.

    Returns:
      The state in the end.
    """
    logs.mkdir(parents=True, exist_ok=True)
    states = {cell.name: "waiting" if cell.score is None else "complete" for cell in cells}
    steps = {cell.name: cell.steps for cell in cells}
    running: dict[Cell, _Process] = {}
    started, before = time.monotonic(), sum(steps.values())
    try:
        while True:
            for cell, process in _ended(running):
                states[cell.name], steps[cell.name] = _end(cell, process), cell.steps
            _start(cells, states, running, jobs - len(running), logs)
            steps.update({cell.name: cell.steps for cell in running})
            done = sum(steps.values()) - before
            left = sum(_steps_left(cell, states, steps) for cell in cells)
            eta = (time.monotonic() - started) * left / done if done > 0 else None
            progress = Progress(dict(states), dict(steps), eta)
            show(progress)
            if not running or stop.wait(_POLL_SECONDS):
                return progress
    finally:
        for each in running.values():
            each.process.send_signal(signal.SIGINT)
        for each in running.values():
            _wait(each)


def _steps_left(cell: Cell, states: dict[str, str], steps: dict[str, int]) -> int:
    trains = states[cell.name] in ("waiting", "training")
    return (cell.config.steps or 0) - steps[cell.name] if trains else 0


def _ended(running: dict[Cell, _Process]) -> list[tuple[Cell, _Process]]:
    """Takes those that have ended out of the running ones."""
    ended = [(cell, each) for cell, each in running.items() if each.process.poll() is not None]
    for cell, each in ended:
        each.output.close()
        del running[cell]
    return ended


def _end(cell: Cell, each: _Process) -> str:
    """The state of a cell after one of its processes."""
    if each.process.returncode:
        lines = each.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "no output")
    if each.evaluates:
        result = each.log.with_suffix(".json")
        result.replace(cell.directory / EVALUATION)
        return "complete"
    if cell.episodes:
        return "waiting"
    return "stopped" if cell.score is None else "complete"


def _wait(each: _Process) -> None:
    """Waits for the snapshot of a process that was asked to end."""
    try:
        each.process.wait(_LAST_SECONDS)
    except subprocess.TimeoutExpired:
        each.process.kill()
        each.process.wait()
    each.output.close()


def _start(
    cells: Sequence[Cell],
    states: dict[str, str],
    running: dict[Cell, _Process],
    free: int,
    logs: Path,
) -> None:
    """Starts the next stages of waiting cells, those that have begun first."""
    if not free:
        return
    waiting = [cell for cell in cells if states[cell.name] == "waiting"]
    waiting.sort(key=lambda cell: not cell.directory.exists())
    for cell in waiting[:free]:
        running[cell] = _spawn(cell, cell.next_stage(), logs)
        states[cell.name] = "evaluating" if running[cell].evaluates else "training"


def _spawn(cell: Cell, arguments: list[str], logs: Path) -> _Process:
    """Starts a stage, in a session of its own: Ctrl-C is passed on once, by this process."""
    evaluates, log = arguments[0] == "evaluate", logs / f"{cell.name}.txt"
    output = (log.with_suffix(".json") if evaluates else log).open("wb")
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(log.open("ab")) if evaluates else subprocess.STDOUT
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **shared_programs(logs.parent)},
            start_new_session=True,
        )
    return _Process(process, output, log, evaluates)
