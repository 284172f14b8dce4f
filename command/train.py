"""`retrax train`: a run, or several whose seeds differ."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from ..basics.validation import Range
from ..datatypes import EnvironmentSpec, VectorEnvironment
from ..environments.failures import close_quietly
from ..training.assembly import MANY, checked_agent, spec_of
from ..training.process import DirectoryLock
from ..training.run_config import (
    RunConfig,
    new_seed_runs,
    read_config,
    seed_runs,
    write_config,
)
from .own_code import own_code
from .parsing import tell
from .run_arguments import RunArguments, parse_run
from .training import RunFailedError, train_together


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainArguments(RunArguments):
    """Train an agent in one process, or continue a run. Ctrl-C also saves a snapshot."""

    seeds: Annotated[int, Range(1)] = 1
    """Number of runs, with the seeds from --seed on, each in its own directory and process. With
    --on-device they are computed together."""

    jobs: Annotated[int, Range(1)] = 1
    """Number of runs at a time, if there are several seeds."""


def train_command(arguments: Sequence[str]) -> int:
    """Trains, prints where the run is and what to do next, and returns 1 if it failed, else 0."""
    with contextlib.ExitStack() as stack:
        made: list[VectorEnvironment] = []

        def make_spec(config: RunConfig) -> EnvironmentSpec:
            is_one = config.num_actors == 1 and config.actor_update_period is None
            if not is_one or config.on_device or config.num_envs > MANY:
                return spec_of(config)
            environment = config.make_environment(seed=config.seed, num_envs=config.num_envs)
            stack.callback(close_quietly, environment)
            made.append(environment)
            return environment.spec

        given, run, directory, spec = parse_run(
            TrainArguments, arguments, prog="retrax train", make_spec=make_spec
        )
        begun = seed_runs(directory) if spec is None else []
        if max(given.seeds, len(begun)) > 1 and run.on_device and run.logger is not None:
            raise ValueError(
                f"--logger must be None for several seeds --on-device, got {run.logger}."
            )
        if spec is None and not begun:
            return _train({directory: run}, directory, resume=True, plain=given.plain)
        if given.seeds == 1 and not begun:
            environment = made[0] if made else None
            return _train({directory: run}, directory, environment=environment, plain=given.plain)
    if spec is not None:
        run = run.resolve(spec)
        with own_code(run):
            agent = checked_agent(run, spec)
        if run.on_device:
            from ..device.loop import check_seeds  # before anything is done for each seed

            check_seeds(run, agent, spec, given.seeds)
        runs = new_seed_runs(directory, run, given.seeds)
        if run.on_device:
            return _train(runs, directory, plain=given.plain)
        for path, config in runs.items():
            path.mkdir(parents=True)
            write_config(path, config)
    return _train_seeds(run, directory, jobs=given.jobs, plain=given.plain)


def _train_seeds(config: RunConfig, directory: Path, *, jobs: int, plain: bool) -> int:
    """Trains those runs of a directory that are not finished, with the config but for the seed."""
    from .grid import Cell, run_shown  # with all that benchmarks need

    with DirectoryLock(directory) as lock:
        lock.acquire()
        cells = []
        for run in seed_runs(directory):
            one = dataclasses.replace(config, seed=read_config(run).seed)
            write_config(run, one)
            cells.append(Cell(None, one, run, episodes=0))
        if config.on_device:
            left = [cell for cell in cells if cell.score is None] or cells
            runs = {cell.directory: cell.config for cell in left}
            return _train(runs, directory, resume=True, plain=plain)
        end, is_stopped = run_shown(cells, jobs=jobs, directory=directory, plain=plain)
    return _finish(directory, is_stopped=is_stopped, has_failed=bool(end.failed))


def _train(runs: Mapping[Path, RunConfig], directory: Path, **options: Any) -> int:
    """`train_together`, and what to do next; `directory` is that of the run, or of all."""
    try:
        summaries, is_signalled = train_together(runs, **options)
    except RunFailedError as failure:
        tell(f"retrax: {failure}")
        return 1 if directory in runs else _finish(directory, has_failed=True)
    is_stopped = is_signalled or any(summary.interrupted for summary in summaries)
    return _finish(directory, is_stopped=is_stopped)


def _finish(directory: Path, *, is_stopped: bool = False, has_failed: bool = False) -> int:
    if is_stopped:
        tell(f"Stopped by you. To continue: retrax train --resume {directory}")
    evaluate = "" if seed_runs(directory) else f"retrax evaluate {directory}  |  "
    runs = "Run" if evaluate else "Runs"
    print(f"{runs} in {directory}. Next: {evaluate}retrax plot {directory}")
    return int(has_failed)
