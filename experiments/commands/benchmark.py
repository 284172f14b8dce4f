"""`retrax benchmark`: an agent on the tasks of a suite."""

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

from ... import __version__
from ...agents.entry import find_agent
from ...basics.validation import Range
from ...evaluation.suites import BSUITE, Suite, Task, find_suite
from ...run_directory.directory_lock import DirectoryLock
from ...runtime.assembly import spec_of
from ...runtime.checks import checked_agent
from ...runtime.presets import preset_config
from ...runtime.run_config import RunConfig
from ...runtime.stop import stop_on_signals
from ..bsuite_table import write_bsuite
from ..grid import Cell, Progress, run_grid
from ..grid_screen import grid_screen
from ..grid_tables import CURVES, SCORES, write_tables
from ..parsing import parse, tell

_PROG = "retrax benchmark"
_SUITE = "suite.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkArguments:
    """Train and evaluate an agent on the tasks of a suite, as far as that has not been done.

    Ctrl-C leaves snapshots; the same command goes on. Several agents may share a directory, which
    `retrax report` shows.
    """

    suite: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SUITE")]
    """atari5, bsuite, classic, control or minatar."""

    agent: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="AGENT")]
    """A registered agent, or module:NAME of your own."""

    tasks: tuple[str, ...] = ()
    """Tasks of the suite; by default all in which the agent can act."""

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


def benchmark_command(arguments: Sequence[str]) -> int:
    """Runs what is missing, and writes the tables.

    Returns:
      The exit status: 1 if a run failed, else 0.
    """
    given = parse(BenchmarkArguments, arguments, prog=_PROG)
    suite, entry = find_suite(given.suite), find_agent(given.agent)
    if given.preset is not None:
        preset_config(entry, given.preset)
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


def _cells(given: BenchmarkArguments, suite: Suite, directory: Path) -> Iterator[Cell]:
    """The grid, seed by seed: a grid that is stopped early has all tasks with fewer seeds."""
    able, refused, num_envs = [], {}, _num_envs(given, suite)
    for task in suite.choose(given.tasks):
        if _run_directory(given, directory, task, 0).exists():  # it was checked before that began
            able.append(task)
            continue
        probe = RunConfig(
            agent=given.agent, environment=task.environment, num_envs=num_envs, steps=1
        )
        try:
            spec = spec_of(probe)
            checked_agent(probe.resolve(spec), spec)
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


def _num_envs(given: BenchmarkArguments, suite: Suite) -> int:
    """Environments of a run.

    Raises:
      ValueError: the suite needs one.
    """
    if suite.num_envs == 1 < (given.num_envs or 1):
        raise ValueError(
            f"--num-envs must be 1 in {suite.name}, whose scores are of one sequence of episodes, "
            f"got {given.num_envs}."
        )
    return given.num_envs or suite.num_envs


def _run_directory(given: BenchmarkArguments, directory: Path, task: Task, seed: int) -> Path:
    return directory / "runs" / f"{given.agent.replace(':', '-')}-{task.name}-{seed}"


def _check(directory: Path, suite: Suite, cells: Sequence[Cell]) -> None:
    """Refuses a directory of another suite or of other runs."""
    path = directory / _SUITE
    if path.is_file() and (found := json.loads(path.read_text())["suite"]) != suite.name:
        raise ValueError(f"{directory} is of the suite {found}: choose another --directory.")
    for cell in cells:
        cell.check()


def _write_suite(directory: Path, suite: Suite) -> None:
    """What the report tells of the machine and the versions; those of the newest call."""
    (directory / _SUITE).write_text(
        json.dumps(
            {
                "suite": suite.name,
                "command": [_PROG, *sys.argv[2:]],
                "retrax": __version__,
                "python": platform.python_version(),
                "jax": metadata.version("jax"),
                "numpy": metadata.version("numpy"),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
            },
            indent=2,
        )
        + "\n"
    )


def _all_cells(given: BenchmarkArguments, suite: Suite, directory: Path) -> list[Cell]:
    """A cell for every run directory, those of other agents and earlier calls included."""
    by_environment = {task.environment: task for task in suite.tasks}
    found = []
    for path in sorted((directory / "runs").glob("*/config.json")):
        values = json.loads(path.read_text())
        task = by_environment[values["environment"]]
        config = RunConfig(
            agent=values["agent"],
            environment=values["environment"],
            seed=values["seed"],
            steps=values["steps"],
        )
        found.append(Cell(task, config, path.parent, given.episodes or task.episodes))
    return found


def _finish(directory: Path, end: Progress, *, stopped: bool) -> int:
    for name in end.failed:
        tell(f"{name} failed: {end.states[name]} (all of it: {directory / 'logs' / name}.txt)")
    if stopped:
        tell("Stopped by you. The same command goes on.")
    print(
        f"{end.complete} of {len(end.states)} runs are complete: {directory / SCORES}, "
        f"{directory / CURVES}. Next: retrax report {directory}"
    )
    return int(bool(end.failed))
