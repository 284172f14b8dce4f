"""`retrax benchmark`: an agent on the tasks of a suite; and `retrax report`, which shows it."""

import contextlib
import csv
import dataclasses
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from .. import __version__
from ..agents.entry import find_agent
from ..basics.validation import Range
from ..basics.writing import replacing
from ..environments.bsuite_tasks import PREFIX
from ..evaluation import bsuite, read_metrics
from ..evaluation.comparison import normalised
from ..evaluation.report import write_report
from ..evaluation.suites import BSUITE, Suite, Task, find_suite
from ..training.assembly import spec_of
from ..training.checks import checked_agent
from ..training.config_file import read_config
from ..training.directory_lock import DirectoryLock
from ..training.resuming import Start
from ..training.run_config import RunConfig
from ..training.snapshots import Snapshots
from ..training.stop import stop_on_signals
from .grid import EVALUATION, Cell, grid_screen, run_grid
from .parsing import parse, parse_call, tell

SCORES = "scores.csv"
CURVES = "curves.csv"
_PROG = "retrax benchmark"
_SUITE = "suite.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Train and evaluate an agent on the tasks of a suite, as far as that has not been done.

    Ctrl-C leaves snapshots; the same command goes on. Several agents may share a directory, which
    `retrax report` shows.
    """

    suite: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SUITE")]
    """atari, atari5, bsuite, classic, control or minatar."""

    agent: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="AGENT")]
    """A registered agent, or module:NAME of your own."""

    tasks: tuple[str, ...] = ()
    """Tasks of the suite; by default all in which the agent can act. `catch` is all ids of bsuite's
    experiment, `catch-3` one of them."""

    seeds: Annotated[int, Range(1)] = 3
    """Runs of each task, with seeds from 0 on."""

    jobs: Annotated[int, Range(1)] = 1
    """Runs at a time."""

    directory: Path | None = None
    """Where runs and tables are kept; by default runs/benchmark-SUITE."""

    preset: str | None = None
    """The preset for all tasks; by default the agent's for each."""

    steps: Annotated[int | None, Range(1)] = None
    """Steps of each run; by default those of the task."""

    episodes: Annotated[int | None, Range(1)] = None
    """Episodes of each evaluation; by default those of the task."""

    num_envs: Annotated[int | None, Range(1)] = None
    """Environments of a run, stepped together; by default 8, in bsuite 1."""

    plain: bool = False
    """Lines instead of a live table."""

    def run(self) -> int:
        """Runs what is missing, and writes the tables; 1 if a run failed, else 0."""
        suite, entry = find_suite(self.suite), find_agent(self.agent)
        if self.preset is not None:
            entry.config_of(self.preset)
        directory = self.directory or Path("runs") / f"benchmark-{suite.name}"
        directory = directory.absolute()  # environments may change the working directory
        cells = list(self._cells(suite, directory))
        with DirectoryLock(directory) as lock:
            _check(directory, suite, cells)
            lock.acquire()
            (directory / _SUITE).write_text(json.dumps(_about(suite), indent=2) + "\n")
            with stop_on_signals() as stop, grid_screen(cells, plain=self.plain) as show:
                logs = directory / "logs"
                end = run_grid(cells, jobs=self.jobs, logs=logs, stop=stop, show=show)
            found = self._all_cells(suite, directory)
            write_tables(directory, found)
            if suite.name == BSUITE:
                write_bsuite(directory, found)
        for name in end.failed:
            tell(f"{name} failed: {end.states[name]} (all of it: {logs / name}.txt)")
        if stop.is_set():
            tell("Stopped by you. The same command goes on.")
        print(
            f"{end.complete} of {len(end.states)} runs are complete: {directory / SCORES}, "
            f"{directory / CURVES}. Next: retrax report {directory}"
        )
        return int(bool(end.failed))

    def _cells(self, suite: Suite, directory: Path) -> Iterator[Cell]:
        """The grid, seed by seed: a grid that is stopped early has all tasks with fewer seeds."""
        num_envs = self.num_envs or suite.num_envs
        if suite.num_envs == 1 < num_envs:
            raise ValueError(
                f"--num-envs must be 1 in {suite.name}, whose scores are of one sequence of "
                f"episodes, got {num_envs}."
            )
        run = f"{directory / 'runs'}/{self.agent.replace(':', '-')}"
        able, refused = [], {}
        for task in suite.choose(self.tasks):
            try:
                if not Path(f"{run}-{task.name}-0").exists():  # else it was checked before
                    self._check_task(task, num_envs)
                able.append(task)
            except ValueError as error:
                refused[task.name] = str(error)
        for name, sentence in refused.items():
            tell(f"{name} is left out: {sentence}")
        if not able:
            raise ValueError(f"{self.agent} can act in no task: {next(iter(refused.values()))}")
        for seed in range(self.seeds):
            for task in able:
                config = RunConfig(
                    agent=self.agent,
                    environment=task.environment,
                    preset=self.preset,
                    steps=self.steps or task.steps,
                    seed=seed,
                    num_envs=num_envs,
                )
                episodes = self.episodes or task.episodes
                yield Cell(task, config, Path(f"{run}-{task.name}-{seed}"), episodes)

    def _check_task(self, task: Task, num_envs: int) -> None:
        """Raises ValueError if the agent cannot act in a task."""
        environment = task.environment
        probe = RunConfig(agent=self.agent, environment=environment, num_envs=num_envs, steps=1)
        spec = spec_of(probe)
        checked_agent(probe.resolve(spec), spec)

    def _all_cells(self, suite: Suite, directory: Path) -> list[Cell]:
        """A cell for every run directory, those of other agents and earlier calls included."""
        by_environment = {task.environment: task for task in suite.all_tasks}
        found = []
        for path in sorted((directory / "runs").glob("*/config.json")):
            config = read_config(path.parent)
            task = by_environment[config.environment]
            found.append(Cell(task, config, path.parent, self.episodes or task.episodes))
        return found


def benchmark_command(arguments: Sequence[str]) -> int:
    """Runs what is missing; returns 1 if a run failed, else 0."""
    return int(parse(Benchmark, arguments, prog=_PROG).run())


def report_command(arguments: Sequence[str]) -> int:
    """Writes the page."""
    directory = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    given = parse_call(write_report, arguments, prog="retrax report", directory=directory)
    print(write_report(**given))
    return 0


def _check(directory: Path, suite: Suite, cells: Sequence[Cell]) -> None:
    """Refuses a directory of another suite or of other runs."""
    path = directory / _SUITE
    if path.is_file() and (found := json.loads(path.read_text())["suite"]) != suite.name:
        raise ValueError(f"{directory} is of the suite {found}: choose another --directory.")
    for cell in cells:
        if not (cell.directory / "config.json").is_file():
            continue
        begun = read_config(cell.directory)
        for name, wanted in vars(cell.config).items():
            is_ = getattr(begun, name)
            if is_ != wanted and wanted is not None and name != "search_path":
                raise ValueError(
                    f"{cell.directory} was run with {name} {is_}, not {wanted}: choose another "
                    "--directory."
                )


def _about(suite: Suite) -> dict[str, Any]:
    """What the report says of the machine and the versions: those of the newest call."""
    return {
        "suite": suite.name,
        "command": [_PROG, *sys.argv[2:]],
        "retrax": __version__,
        "python": platform.python_version(),
        "jax": metadata.version("jax"),
        "numpy": metadata.version("numpy"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
    }


def write_tables(directory: Path, cells: Sequence[Cell]) -> None:
    """Writes scores.csv and curves.csv of the complete cells."""
    complete = [(cell, cell.task) for cell in cells if cell.task and cell.score is not None]
    with _table(directory / SCORES) as write:
        write("agent preset task seed steps updates seconds episodes score low high normalised")
        for cell, task in complete:
            write(_scores_of(cell, task))
    with _table(directory / CURVES) as write:
        write("agent task seed steps episode_return")
        for cell, task in complete:
            metrics = read_metrics(cell.directory)
            for steps, value in zip(metrics["steps"], metrics["episode_return"], strict=True):
                if np.isfinite(value):  # an episode ended
                    write([cell.config.agent, task.name, cell.config.seed, int(steps), value])


def write_bsuite(directory: Path, cells: Sequence[Cell]) -> None:
    """Writes bsuite.csv of the complete cells: a row for each agent, seed, and experiment or tag.

    Raises:
      ValueError: a snapshot is damaged.
    """
    records: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for cell in cells:
        if cell.score is not None and (rows := record_of(cell.directory)):
            of_seed = records.setdefault((cell.config.agent, cell.config.seed), {})
            of_seed[cell.config.environment.removeprefix(PREFIX)] = rows
    with _table(directory / bsuite.SCORES) as write:
        write("agent seed kind name score ids finished")
        for (agent, seed), found in sorted(records.items()):
            for score in bsuite.scores(found):
                write([agent, seed, *score])


@contextlib.contextmanager
def _table(path: Path) -> Iterator[Callable[[str | list[Any]], None]]:
    """Writes a CSV file, whole or not at all; names of columns are given as one text."""
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        yield lambda row: writer.writerow(row.split() if isinstance(row, str) else row)


def _scores_of(cell: Cell, task: Task) -> list[Any]:
    found = json.loads((cell.directory / EVALUATION).read_text())
    metrics, config = read_metrics(cell.directory), read_config(cell.directory)
    score = found["mean_return"]
    return [
        *(config.agent, config.preset, task.name, config.seed, config.steps),
        *(int(metrics["updates"][-1]), round(float(metrics["seconds"][-1]), 1)),
        *(found["episodes"], score, found["low"], found["high"]),
        normalised(score, task.low, task.high),
    ]


def record_of(run: Path) -> list[dict[str, Any]]:
    """What the environment of a run recorded up to the newest snapshot, for bsuite."""
    states = Start.at(Snapshots(run)).environment_states
    return states[0]["records"][0] if states else []
