"""Launching a run as a program of many processes: arguments, run directory, and `retrax.launch`."""

import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from ..datatypes import EnvironmentSpec
from ..experiments.commands.run_arguments import AgentConfig, RunArguments, parse_run
from ..experiments.parsing import part, tell, words_of
from ..run_directory.config_file import (
    PROGRAM,
    check_new_directory,
    new_directory,
    read_config,
    write_config,
)
from ..run_directory.directory_lock import DirectoryLock
from ..runtime.assembly import spec_of
from ..runtime.checks import check_devices, checked_agent
from ..runtime.presets import describe_default_preset
from ..runtime.run_config import RunConfig
from .config import ProgramConfig, read_options, resumed, write_options
from .engines import isolation
from .engines.options import EngineOptions, ProgramOptions
from .launcher import LaunchSummary, run_program, summarise

PROG = "retrax launch"
UPDATE_PERIOD = 50
_ACTORS = 2
_ACTOR_BYTES = 300e6  # memory of an actor's process, at least


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchArguments(EngineOptions, RunArguments[AgentConfig]):
    """Train an agent as a program of many processes, or continue one."""

    def __post_init__(self) -> None:
        """Leaves the checks to `run` and to `EngineOptions`."""

    @classmethod
    def resumed(cls, directory: Path) -> "LaunchArguments[Any]":
        """The arguments that continue a program as it is."""
        run = read_config(directory)
        if not (directory / PROGRAM).is_file():
            raise ValueError(
                f"{directory} was trained in one process: continue it with retrax train --resume "
                f"{directory}"
            )
        options = part(read_options(directory, run), ProgramOptions)
        return cls(**vars(run), **vars(options), resume=directory)

    def run(self, **changes: Any) -> RunConfig:
        """The run, with changes and a program's defaults."""
        actors = self.num_actors or self.workers.num_workers or _ACTORS
        num_envs = self.num_envs or (actors if self.acme else 0)
        return _with_period(super().run(num_actors=actors, num_envs=num_envs, **changes))


def launch(
    config: RunConfig,
    directory: Path | str | None = None,
    *,
    engine: EngineOptions = EngineOptions(),  # noqa: B008 - frozen
    plain: bool = True,
) -> LaunchSummary:
    """Trains an agent as a program of many processes, and waits for its end.

    Everything is checked first; then the program runs in a process of its own, with a network
    namespace of its own.

    Args:
      config: what to run; `num_actors` actors share its environments.
      directory: the run directory; a new one under runs/ if None.
      engine: how it is run.
      plain: log lines instead of a live table.

    Raises:
      ValueError: the environment, the agent, its config or the directory is refused, another
        process writes into the directory, or the system refuses the namespace.
    """
    if engine.needs_namespace:
        isolation.check_allowed(isolation.probe())
    directory = Path(directory or new_directory(config)).absolute()  # environments may leave it
    config = config.anchored()
    spec = spec_of(config)
    program = _new(_with_period(config.resolve(spec)), directory, engine, spec)
    with DirectoryLock(directory) as lock:  # the process takes it next
        check_new_directory(directory, program.run)
        lock.acquire()
        _prepare(program)
    # A network namespace is entered before NumPy has started its threads, so not in this process.
    # The other one continues the run at its beginning.
    words = [*words_of(engine, EngineOptions()), *(["--plain"] if plain else [])]
    module = [sys.executable, "-m", "retrax.launchpad_programs"]
    process = subprocess.Popen([*module, "--resume", str(directory), *words])
    return summarise(program, failed=_wait(process) != 0)


def launch_with_arguments(arguments: Sequence[str], *, refused: str) -> int:
    """Launches, and prints how it ended and what to do next.

    Args:
      arguments: of the command line.
      refused: why this process has no network namespace of its own; "" if it has one.

    Raises:
      ValueError: one sentence about what is wrong.
    """
    notes, warnings = list[str](), list[str]()
    with contextlib.ExitStack() as stack:
        given, run, directory, spec = parse_run(
            LaunchArguments, arguments, prog=PROG, make_spec=spec_of
        )
        engine = part(given, EngineOptions)
        if spec is None:
            lock = stack.enter_context(DirectoryLock(directory))
            program, warnings = _continued(run, directory, engine)
        else:
            program = _new(run, directory, engine, spec)
            notes = [describe_default_preset(run.entry, run.environment, spec)]
            lock = stack.enter_context(DirectoryLock(directory))
            check_new_directory(directory, run)
        notes += engine.network(refused)
        if run.logger is not None and not refused:
            warnings.append(
                "The logger has no network either: let it write files (WANDB_MODE=offline), or "
                "give --listen-everywhere."
            )
        lock.acquire()
        opened = stack.enter_context(engine.open(program))
        _prepare(program)
        acting = "workers" if program.has_workers else "actors"
        tell(
            f"preset {run.preset}, {run.steps} steps, {run.num_actors} {acting} * "
            f"{run.environments_per_actor} environments, run directory {directory}"
        )
        summary = run_program(
            program,
            opened,
            mode=engine.launch,
            plain=given.plain,
            notes=notes,
            warnings=warnings,
        )
        return _finish(summary, engine)


def _new(
    run: RunConfig, directory: Path, engine: EngineOptions, spec: EnvironmentSpec
) -> ProgramConfig:
    """The program of a resolved run, checked."""
    program = ProgramConfig(run=run, directory=directory, **vars(part(engine, ProgramOptions)))
    engine.check(program)
    _check_processes(run, engine.launch)
    checked_agent(run, spec)
    return program


def _continued(
    run: RunConfig, directory: Path, engine: EngineOptions
) -> tuple[ProgramConfig, list[str]]:
    """The program of a run directory, and warnings."""
    run.find_logger()
    check_devices(run.learner_devices)
    program = read_options(directory, run, **vars(part(engine, ProgramOptions)))
    engine.check(program)
    program, warnings = resumed(program, engine.replay_check(program))
    return program, warnings + engine.replay_notes(program)


def _with_period(run: RunConfig) -> RunConfig:
    """Actors in other processes cannot read the newest parameters."""
    if run.actor_update_period is not None or run.workers.num_workers:
        return run
    return dataclasses.replace(run, actor_update_period=UPDATE_PERIOD)


def _check_processes(run: RunConfig, mode: str) -> None:
    """Refuses more processes of actors or workers than the memory has room for."""
    available = psutil.virtual_memory().available
    fitting = max(int(available / _ACTOR_BYTES), 1)
    if mode == "local_mp" and (count := run.num_actors) > fitting:
        option = "--num-workers" if run.workers.num_workers else "--num-actors"
        raise ValueError(
            f"{option} {count} needs {count * _ACTOR_BYTES / 1e9:.1f} GB of memory, "
            f"but {available / 1e9:.1f} GB are available: at most {fitting} fit."
        )


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """The exit status. Ctrl-C reaches the process too, which then saves a snapshot."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def _prepare(program: ProgramConfig) -> None:
    write_config(program.directory, program.run)
    write_options(program)


def _finish(summary: LaunchSummary, engine: EngineOptions) -> int:
    directory = summary.directory
    if not summary.finished:
        why = "A node failed. " if summary.failed else "Stopped by you. "
        at = "" if summary.snapshot is None else f"Snapshot at {summary.snapshot} steps. "
        options = f" --engine {engine.engine}" if engine.engine else ""
        options += " --launch local_mt" if engine.launch == "local_mt" else ""
        tell(f"{why}{at}To continue: {PROG} --resume {directory}{options}")
    print(
        f"Run in {directory}. Next: retrax evaluate {directory}  |  retrax plot {directory}",
        flush=True,
    )
    return 1 if summary.failed else 0
