"""`retrax benchmark`: an agent on the tasks of a suite, and tables of the results."""

import csv
import dataclasses
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from .. import __version__
from ..agents.entry import find_agent
from ..basics.files import replacing, write_json
from ..basics.sentences import typed
from ..basics.validation import Range
from ..environments.switches import BSUITE_PREFIX
from ..evaluation import bsuite, read_metrics
from ..evaluation.report import CURVES, SCORES, SUITE
from ..evaluation.statistics import normalised
from ..evaluation.suites import BSUITE, Suite, find_suite, read_json
from ..training.assembly import Start, checked_agent, spec_of
from ..training.process import DirectoryLock
from ..training.run_config import RunConfig, read_config
from ..training.snapshots import Snapshots
from .grid import EVALUATION, Cell, run_shown
from .parsing import tell
from .training import own_code


def benchmark(
    suite: str,
    agent: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="AGENT")],
    *,
    tasks: tuple[str, ...] = (),
    seeds: Annotated[int, Range(1)] = 3,
    jobs: Annotated[int, Range(1)] = 1,
    directory: Path | None = None,
    preset: str | None = None,
    steps: Annotated[int | None, Range(1)] = None,
    episodes: Annotated[int | None, Range(1)] = None,
    num_envs: Annotated[int | None, Range(1)] = None,
    on_device: bool = False,
    plain: bool = False,
) -> int:
    """Train and evaluate an agent on the tasks of a suite; skip what has been done.

    Ctrl-C saves snapshots; the same command continues. Several agents may share a directory,
    and `retrax report` shows all of them.

    Args:
      suite: one of atari, atari5, bsuite, classic, control and minatar.
      agent: a registered agent, or your own module:NAME.
      tasks: by default all in which the agent can act; in bsuite `catch` is all ids, `catch-3` one.
      seeds: number of runs of each task, with the seeds 0, 1, 2 and so on.
      jobs: number of runs at a time. They share the cores, which may change a result's last bits.
      directory: of runs and tables; by default runs/benchmark-SUITE, or ...-on-device.
      preset: the preset for all tasks; by default the agent's for each.
      steps: steps of each run; by default the task's.
      episodes: episodes of each evaluation; by default the task's.
      num_envs: environments of a run, stepped together; by default 8, in bsuite 1.
      on_device: train whole on a device the tasks that are written in JAX; minatar's are pgx's.
      plain: lines instead of a live table.
    """
    found, entry = find_suite(suite), find_agent(agent)
    if preset is not None:
        entry.config_of(preset)
    if found.num_envs == 1 < (num_envs or 1):
        why = f"--num-envs must be 1 in {suite}, which scores a single sequence of episodes"
        raise ValueError(f"{why}, got {num_envs}.")
    # Absolute, since environments may change the working directory.
    directory = Path(directory or f"runs/benchmark-{suite}{'-on-device' * on_device}").absolute()
    path, run = directory / SUITE, f"{directory / 'runs'}/{agent.replace(':', '-')}"
    if path.is_file() and (other := read_json(path, "suite")) != suite:
        raise ValueError(f"{directory} has runs of the suite {other}: choose another --directory.")
    cells = list[Cell]()
    for task in found.choose(tasks):
        config = RunConfig(
            agent=agent,
            environment=(on_device and task.in_jax) or task.environment,
            on_device=on_device,
            preset=preset,
            steps=steps or task.steps,
            num_envs=num_envs or found.num_envs,
            evaluate_every=0,  # a process of its own evaluates at the end
        )
        paths = [Path(f"{run}-{task.name}-{seed}") for seed in range(seeds)]
        try:
            if not all(path.exists() for path in paths):  # else it was checked before
                spec = spec_of(config)
                with own_code(config):
                    resolved = config.resolve(spec)
                    checked_agent(resolved, spec)
                config = dataclasses.replace(config, preset=resolved.preset)
        except ValueError as error:
            refused = error
            tell(f"{task.name} is skipped: {error}")
            continue
        for seed, path in enumerate(paths):
            one = dataclasses.replace(config, seed=seed)
            cells.append(Cell(one, path, episodes or task.episodes))
    if not cells:
        raise ValueError(f"{agent} cannot act in any of the tasks: {refused}")
    cells.sort(key=lambda cell: cell.config.seed)  # one stopped early has all tasks, fewer seeds
    with DirectoryLock(directory) as lock:
        asked = {cell.directory: cell for cell in cells}
        for place in sorted(path.parent for path in directory.glob("runs/*/config.json")):
            begun, own = read_config(place), asked.get(place)
            for name, wanted in (vars(own.config) if own else {"on_device": on_device}).items():
                if wanted not in (None, (is_ := getattr(begun, name))) and name != "search_path":
                    why = f"{place} was run with {name} {is_}, not {wanted}"
                    raise ValueError(f"{why}: choose another --directory.")
            path = place / EVALUATION
            if own and path.is_file() and (n := read_json(path, "episodes")) != own.episodes:
                raise ValueError(f"{path} has {n} episodes, not {own.episodes}: remove it first.")
        lock.acquire()
        about = {
            "suite": suite,
            "command": typed(*sys.argv[1:]),
            "retrax": __version__,
            "python": platform.python_version(),
            "jax": metadata.version("jax"),
            "numpy": metadata.version("numpy"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        }
        write_json(directory / SUITE, about)  # for the report
        end, is_stopped = run_shown(cells, jobs=jobs, directory=directory, plain=plain)
        runs = complete_runs(directory)
        write_tables(directory, found, runs)
        if suite == BSUITE:
            write_bsuite(directory, runs)
    if is_stopped:
        tell("Stopped by you. The same command continues.")
    done = f"{end.complete} of {len(end.states)} runs are complete"
    print(f"{done}: {directory / SCORES}, {directory / CURVES}. Next: {typed('report', directory)}")
    return int(bool(end.failed))


def complete_runs(directory: Path) -> list[tuple[Path, RunConfig]]:
    """The evaluated runs of a benchmark, including runs of earlier calls."""
    found = sorted((directory / "runs").glob(f"*/{EVALUATION}"))
    return [(path.parent, read_config(path.parent)) for path in found]


def write_tables(directory: Path, suite: Suite, runs: Iterable[tuple[Path, RunConfig]]) -> None:
    """Writes scores.csv and curves.csv of the complete runs."""
    scores, curves = list[list[Any]](), list[list[Any]]()
    tasks = {id: task for task in suite.all_tasks for id in (task.environment, task.in_jax)}
    for run, config in runs:
        metrics, task = read_metrics(run), tasks[config.environment]
        found = read_json(run / EVALUATION, "episodes", "mean_return", "low", "high")
        updates, seconds = int(metrics["updates"][-1]), round(float(metrics["seconds"][-1]), 1)
        row = [config.agent, config.preset, task.name, config.seed, config.steps, updates, seconds]
        scores.append([*row, *found, normalised(found[1], task.low, task.high)])
        for step, value in zip(metrics["steps"], metrics["episode_return"], strict=True):
            if np.isfinite(value):  # an episode ended
                curves.append([config.agent, task.name, config.seed, int(step), value])
    columns = "agent preset task seed steps updates seconds episodes score low high normalised"
    _write_table(directory / SCORES, columns, scores)
    _write_table(directory / CURVES, "agent task seed steps episode_return", curves)


def write_bsuite(directory: Path, runs: Iterable[tuple[Path, RunConfig]]) -> None:
    """Writes bsuite.csv of the complete runs: a row for each agent, seed, experiment and tag."""
    records: dict[tuple[str, int], dict[str, Any]] = {}
    for run, config in runs:
        states = Start.at(Snapshots(run)).environment_states
        if states:  # recorded up to the newest snapshot
            of_seed = records.setdefault((config.agent, config.seed), {})
            of_seed[config.environment.removeprefix(BSUITE_PREFIX)] = states[0]["records"][0]
    rows = [
        [*key, *score] for key, found in sorted(records.items()) for score in bsuite.scores(found)
    ]
    _write_table(directory / bsuite.SCORES, "agent seed kind name score ids finished", rows)


def _write_table(path: Path, columns: str, rows: Iterable[Sequence[Any]]) -> None:
    """Writes a CSV file, whole or not at all."""
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns.split(), *rows])
