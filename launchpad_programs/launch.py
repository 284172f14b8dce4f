"""Launching a run as a program of many processes: arguments, run directory, and `retrax.launch`."""

import contextlib
import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..basics.machine import check_memory
from ..basics.sentences import reason, typed
from ..command.parsing import part, tell, words_of
from ..command.train import RunArguments, parse_run
from ..command.training import own_code
from ..datatypes import EnvironmentSpec
from ..evaluation.arguments import checked
from ..replay.checkpoints import Checkpoints
from ..replay.selectors import has_tables
from ..training.assembly import check_devices, checked_agent, open_snapshots, spec_of
from ..training.process import DirectoryLock
from ..training.run_config import PROGRAM, RunConfig, check_directory, new_directory, read_config
from ..training.snapshots import check_states, in_order, newest_snapshot
from .config import STATUS, ProgramConfig, read_json, write_program
from .engines import isolation
from .engines.options import EngineOptions, ProgramOptions, missing_packages
from .launcher import CALLER, LaunchSummary, run_program, summarise
from .node import Engine
from .replay import check_kept, kept_file

UPDATE_PERIOD = 50
_ACTORS = 2
_ACTOR_BYTES = 300e6  # memory of an actor's process, at least


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchArguments(EngineOptions, RunArguments):
    """Train an agent as a program of many processes, or continue one."""

    def __post_init__(self) -> None:
        """Leaves the checks to `run` and to `EngineOptions`."""

    @classmethod
    def resumed(cls, directory: Path) -> "LaunchArguments":
        """The arguments that continue a program as it is."""
        run = read_config(directory)
        if not (path := directory / PROGRAM).is_file():
            raise ValueError(
                f"{directory} was trained in one process: continue it with "
                f"{typed('train', '--resume', directory)}"
            )
        try:
            options = ProgramOptions(**read_json(path))
        except (TypeError, ValueError) as error:
            why = f"is damaged or of another version of retrax ({reason(error)})"
            raise ValueError(f"{path} {why}.") from error
        return cls(**vars(run), **vars(options), resume=directory)

    def run(self, **changes: Any) -> RunConfig:
        """The run, with changes and a program's numbers of actors and environments."""
        if self.on_device:
            raise ValueError("on_device must be False in a program: retrax train has it.")
        actors = self.num_actors or self.workers.num_workers or _ACTORS
        num_envs = self.num_envs or (actors if self.acme else 0)
        return super().run(num_actors=actors, num_envs=num_envs, **changes)


@checked
def launch(
    config: RunConfig,
    directory: Path | str | None = None,
    *,
    engine: EngineOptions = EngineOptions(),  # noqa: B008 - frozen
    plain: bool = True,
) -> LaunchSummary:
    """Trains an agent as a program of many processes, and waits for its end.

    Everything is checked first; then the program runs in a process of its own, and in a network
    namespace of its own where `EngineOptions.needs_namespace`.

    Args:
      config: what to run; `num_actors` actors share its environments.
      directory: the run directory; a new one under runs/ if None.
      engine: how it is run.
      plain: log lines instead of a live line.

    Raises:
      ModuleNotFoundError: the engine is not installed.
      ValueError: something is refused, by the system too, or the directory is in use.
    """
    if engine.needs_namespace:
        isolation.check_allowed(isolation.probe())
    directory = Path(directory or new_directory(config)).absolute()  # environments may leave it
    config = config.anchored()
    program = _new(config, directory, engine, spec_of(config))
    with DirectoryLock(directory) as lock:  # the process takes it next
        check_directory(directory, program.run)
        lock.acquire()
        check_directory(directory, program.run)  # again: another process may have run since
        write_program(program)
    # A network namespace is entered before NumPy has started its threads, so not in this process.
    # The other one continues the run at its beginning.
    words = [str(directory), *words_of(engine, EngineOptions()), *(["--plain"] if plain else [])]
    command = [sys.executable, "-m", "retrax.launchpad_programs", "--resume", *words]
    process = subprocess.Popen(command, env={**os.environ, CALLER: str(os.getpid())})
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # reaches the process too, which then saves
            return summarise(program, failed=process.wait() != 0)


def launch_with_arguments(arguments: Sequence[str], *, refused: str) -> int:
    """Launches; the exit status. `refused`: why there is no network namespace, "" if there is."""
    notes, warnings = list[str](), list[str]()
    with contextlib.ExitStack() as stack:
        given, run, directory, spec = parse_run(
            LaunchArguments, arguments, prog="retrax launch", make_spec=spec_of
        )
        engine = part(given, EngineOptions)
        if spec is None:
            lock = stack.enter_context(DirectoryLock(directory))
            run.find_logger()
            check_devices(run.learner_devices)
            program, warnings = resumed(_program(run, directory, engine), engine)
        else:
            program = _new(run, directory, engine, spec)
            notes = [run.entry.describe_preset(run.environment, spec)]
            lock = stack.enter_context(DirectoryLock(directory))
            check_directory(directory, program.run)
        notes += engine.network(refused)
        if run.logger is not None and not refused:
            warnings.append(
                "The logger has no network either: let it write files (WANDB_MODE=offline), or "
                "give --listen-everywhere."
            )
        lock.acquire()
        if spec is not None:
            check_directory(directory, program.run)  # again: another process may have run since
        opened = open_engine(engine, program, stack)
        write_program(program)
        run, acting = program.run, "workers" if program.has_workers else "actors"
        tell(
            f"preset {run.preset}, {run.steps} steps, {run.num_actors} {acting} * "
            f"{run.environments_per_actor} environments, run directory {directory}"
        )
        summary = run_program(
            program, opened, name=engine.name, plain=given.plain, notes=notes, warnings=warnings
        )
    if not summary.finished:
        why = "A node failed. " if summary.failed else "Stopped by you. "
        at = "" if summary.snapshot is None else f"Snapshot at {summary.snapshot} steps. "
        options = ["--engine", engine.engine] if engine.engine else []
        tell(f"{why}{at}To continue: {typed('launch', '--resume', directory, *options)}")
    next_one = f"Next: {typed('evaluate', directory)}; {typed('plot', directory)}"
    print(f"Run in {directory}. {next_one}", flush=True)
    return 1 if summary.failed else 0


def check_engine(engine: EngineOptions, program: ProgramConfig) -> None:
    """Refuses in one sentence (ModuleNotFoundError, ValueError) what could not run."""
    program.acme_options()  # imported before any process starts
    if engine.ray_address is not None and engine.name != "ray":
        raise ValueError("--ray-address needs --engine ray.")
    if engine.name == "ray":
        from .engines.ray_session import check_ray

        check_ray(engine.ray_address, program, listen_everywhere=engine.listen_everywhere)
    elif engine.name == "launchpad" and (missing := missing_packages()):
        raise ModuleNotFoundError(
            "--engine launchpad needs Linux, Python 3.10 and the distributed tier: pip install -r "
            "requirements.txt in a clone, elsewhere pip install 'retrax[distributed]' (not "
            f"installed: {', '.join(missing)}). --engine ray and --engine threads work without it."
        )


def open_engine(
    engine: EngineOptions, program: ProgramConfig, stack: contextlib.ExitStack
) -> Engine:
    """The engine, which ends with the stack."""
    if engine.name == "threads":
        from .engines.threads import start_threads

        return start_threads
    if engine.name == "launchpad":
        from .engines.launchpad import start_processes

        return start_processes
    from .engines.ray_session import ray_session

    ended = stack.enter_context(ray_session(engine.ray_address, program))
    from .engines.ray import start_actors

    return functools.partial(start_actors, max_failures=engine.max_failures, ended=ended)


def resumed(program: ProgramConfig, engine: EngineOptions) -> tuple[ProgramConfig, list[str]]:
    """The program that continues at its newest whole snapshot, and warnings for its log."""
    directory = program.directory
    check: Any = None if program.has_workers else functools.partial(check_kept, directory)
    if engine.name == "launchpad" and has_tables(program.run.replay) and not program.has_workers:
        newest = newest_snapshot(directory)
        if newest is not None and kept_file(directory, newest).is_file():
            raise ValueError(
                f"The replay of {directory} is not Reverb's, and --engine launchpad cannot restore "
                "it: resume with --engine ray or --engine threads."
            )
        check = Checkpoints(directory).check
    is_finished = read_json(directory / STATUS).get("phase") == "finished"
    last_step = program.run.steps if is_finished else None
    snapshots, notes = open_snapshots(directory, last_step, check=check)
    if snapshots is None:
        return program, notes
    check_states(directory)
    for folder in in_order((directory / "workers").glob("*")):
        of_worker, found = open_snapshots(folder)
        if of_worker is not None:
            notes += found
    steps = snapshots.newest_whole()
    in_reverb = (directory / "reverb" / str(steps)).is_dir()
    if in_reverb and engine.name != "launchpad" and not kept_file(directory, steps).is_file():
        notes.append(
            "The replay's rows are in a Reverb checkpoint, so the replay is empty and fills again."
        )
    return dataclasses.replace(program, resumed_at=steps), notes


def _program(run: RunConfig, directory: Path, engine: EngineOptions) -> ProgramConfig:
    """The program of a resolved run, which the engine could run."""
    program = ProgramConfig(run=run, directory=directory, **vars(part(engine, ProgramOptions)))
    check_engine(engine, program)
    return program


def _new(
    run: RunConfig, directory: Path, engine: EngineOptions, spec: EnvironmentSpec
) -> ProgramConfig:
    """The program of a run, resolved and checked."""
    if run.evaluate_every is not None:
        raise ValueError("evaluate_every must be None: a program's evaluator never pauses.")
    if run.actor_update_period is None and not run.workers.num_workers:
        # Actors in other processes cannot read the newest parameters.
        run = dataclasses.replace(run, actor_update_period=UPDATE_PERIOD)
    run = run.resolve(spec)
    program = _program(run, directory, engine)
    if engine.name != "threads" and (count := run.num_actors) > 1:
        check_memory(f"A program of {count} actors or workers", count * _ACTOR_BYTES, count)
    with own_code(run):
        checked_agent(run, spec)
    return program
