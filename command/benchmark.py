"""`retrax benchmark`: an agent on the tasks of a suite; and `retrax report`, which shows it."""

import dataclasses
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated

import tyro

from .. import __version__
from ..agents.entry import find_agent
from ..basics.validation import Range
from ..evaluation.report import write_report
from ..evaluation.suites import BSUITE, Suite, Task, find_suite
from ..training.assembly import spec_of
from ..training.checks import checked_agent
from ..training.config_file import read_config
from ..training.directory_lock import DirectoryLock
from ..training.run_config import RunConfig
from ..training.stop import stop_on_signals
from .benchmark_tables import CURVES, SCORES, write_bsuite, write_tables
from .grid import Cell, GridState, grid_screen, run_grid
from .parsing import parse, tell

_PROG = "retrax benchmark"
_SUITE = "suite.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkArguments:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportArguments:
    """Show the results of a benchmark in one HTML page, beside published scores."""

    directory: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """The directory of `retrax benchmark`."""

    output: Path | None = None
    """The HTML file to write; by default report.html in the directory."""


def benchmark_command(arguments: Sequence[str]) -> int:
    """Runs what is missing, and writes the tables.

    Returns:
      The exit status: 1 if a run failed, else 0.
    """
    given = parse(BenchmarkArguments, arguments, prog=_PROG)
    suite, entry = find_suite(given.suite), find_agent(given.agent)
    if given.preset is not None:
        entry.config_of(given.preset)
    directory = given.directory or Path("runs") / f"benchmark-{suite.name}"
    directory = directory.absolute()  # environments may change the working directory
    cells = list(_cells(given, suite, directory))
    with DirectoryLock(directory) as lock:
        _check(directory, suite, cells)
        lock.acquire()
        _write_suite(directory, suite)
        with stop_on_signals() as stop, grid_screen(cells, plain=given.plain) as show:
            end = run_grid(cells, jobs=given.jobs, logs=directory / "logs", stop=stop, show=show)
        found = _all_cells(given, suite, directory)
        write_tables(directory, found)
        if suite.name == BSUITE:
            write_bsuite(directory, found)
    return _finish(directory, end, stopped=stop.is_set())


def report_command(arguments: Sequence[str]) -> int:
    """Writes the page."""
    given = parse(ReportArguments, arguments, prog="retrax report")
    output = given.output or given.directory / "report.html"
    write_report(given.directory, output)
    print(output)
    return 0


def _cells(given: BenchmarkArguments, suite: Suite, directory: Path) -> Iterator[Cell]:
    """The grid, seed by seed: a grid that is stopped early has all tasks with fewer seeds."""
    num_envs = given.num_envs or suite.num_envs
    if suite.num_envs == 1 < num_envs:
        raise ValueError(
            f"--num-envs must be 1 in {suite.name}, whose scores are of one sequence of episodes, "
            f"got {num_envs}."
        )
    able, refused = [], {}
    for task in suite.choose(given.tasks):
        try:
            if not _run_directory(given, directory, task, 0).exists():  # else it was checked before
                _check_task(given.agent, task, num_envs)
            able.append(task)
        except ValueError as error:
            refused[task.name] = str(error)
    for name, sentence in refused.items():
        tell(f"{name} is left out: {sentence}")
    if not able:
        raise ValueError(f"{given.agent} can act in no task: {next(iter(refused.values()))}")
    for seed in range(given.seeds):
        for task in able:
            config = RunConfig(
                agent=given.agent,
                environment=task.environment,
                preset=given.preset,
                steps=given.steps or task.steps,
                seed=seed,
                num_envs=num_envs,
            )
            run = _run_directory(given, directory, task, seed)
            yield Cell(task, config, run, given.episodes or task.episodes)


def _check_task(agent: str, task: Task, num_envs: int) -> None:
    """Raises ValueError if the agent cannot act in a task."""
    probe = RunConfig(agent=agent, environment=task.environment, num_envs=num_envs, steps=1)
    spec = spec_of(probe)
    checked_agent(probe.resolve(spec), spec)


def _run_directory(given: BenchmarkArguments, directory: Path, task: Task, seed: int) -> Path:
    return directory / "runs" / f"{given.agent.replace(':', '-')}-{task.name}-{seed}"


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


def _write_suite(directory: Path, suite: Suite) -> None:
    """What the report says of the machine and the versions: those of the newest call."""
    about = {
        "suite": suite.name,
        "command": [_PROG, *sys.argv[2:]],
        "retrax": __version__,
        "python": platform.python_version(),
        "jax": metadata.version("jax"),
        "numpy": metadata.version("numpy"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
    }
    (directory / _SUITE).write_text(json.dumps(about, indent=2) + "\n")


def _all_cells(given: BenchmarkArguments, suite: Suite, directory: Path) -> list[Cell]:
    """A cell for every run directory, those of other agents and earlier calls included."""
    by_environment = {task.environment: task for task in suite.all_tasks}
    found = []
    for path in sorted((directory / "runs").glob("*/config.json")):
        config = read_config(path.parent)
        task = by_environment[config.environment]
        found.append(Cell(task, config, path.parent, given.episodes or task.episodes))
    return found


def _finish(directory: Path, end: GridState, *, stopped: bool) -> int:
    for name in end.failed:
        tell(f"{name} failed: {end.states[name]} (all of it: {directory / 'logs' / name}.txt)")
    if stopped:
        tell("Stopped by you. The same command goes on.")
    print(
        f"{end.complete} of {len(end.states)} runs are complete: {directory / SCORES}, "
        f"{directory / CURVES}. Next: retrax report {directory}"
    )
    return int(bool(end.failed))
