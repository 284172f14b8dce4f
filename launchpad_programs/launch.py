"""Launching a run as a program of many processes: arguments, run directory, and `retrax.launch`."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from ..datatypes import EnvironmentSpec
from ..experiments.commands.launch import (
    PROG,
    UPDATE_PERIOD,
    ResumeProgramArguments,
    parse_launch,
)
from ..experiments.commands.run_arguments import parse_resumed, resumes
from ..experiments.parsing import tell
from ..experiments.training import train
from ..runtime.assembly import spec_of
from ..runtime.checks import check_devices, checked_agent
from ..runtime.directory_lock import DirectoryLock
from ..runtime.presets import describe_default_preset
from ..runtime.run_directory import (
    PROGRAM,
    RunConfig,
    check_new_directory,
    new_directory,
    read_config,
    write_config,
)
from .config import ProgramConfig, read_options, resumed, write_options
from .engines import installed, isolation
from .engines.options import EngineOptions
from .launcher import run_program

_ACTOR_BYTES = 300e6  # memory of an actor's process, at least


class LaunchSummary(NamedTuple):
    """How a program ended.

    Attributes:
      directory: the run directory.
      steps: transitions taken, earlier parts of the run included.
      updates: updates of the learner, likewise.
      finished: whether the last step was taken.
      failed: whether a node failed; `log.txt` of the run has its traceback.
    """

    directory: Path
    steps: int
    updates: int
    finished: bool
    failed: bool


def launch(
    config: RunConfig,
    directory: Path | str | None = None,
    *,
    mode: Literal["local_mp", "local_mt"] = "local_mp",
    port: int | None = None,
    max_lead: int = ProgramConfig.max_lead,
    listen_everywhere: bool = False,
    acme: str | None = None,
    engine: EngineOptions = EngineOptions(),  # noqa: B008 - frozen
    plain: bool = True,
) -> LaunchSummary:
    """Trains an agent as a program of many processes, and waits for its end.

    Everything is checked first; then the program runs in a process of its own, with a network
    namespace of its own.

    Args:
      config: what to run; `num_actors` actors share its environments.
      directory: the run directory; a new one under runs/ if None.
      mode: processes or threads.
      port: the first of 3 ports to listen on, under Launchpad; free ones if None.
      max_lead: time steps that actors take at most while an update is due, but under Launchpad.
      listen_everywhere: listen on all interfaces: whoever can connect can execute code.
      acme: `package.module:NAME` of `AcmeOptions`.
      engine: where the nodes run, and whether they are restarted.
      plain: log lines instead of a live table.

    Raises:
      ValueError: the environment, the agent, its config or the directory is refused, another
        process writes into the directory, or the system refuses the namespace.
    """
    is_open = mode == "local_mp" and not (engine.name == "ray" and installed.has_tokens())
    if is_open and not listen_everywhere:
        isolation.check_allowed(isolation.probe())
    _check_processes(config, mode)
    directory = Path(directory or new_directory(config)).absolute()  # environments may leave it
    config = config.anchored()
    spec = spec_of(config)
    run = config.resolve(spec)
    checked_agent(run, spec)
    program = ProgramConfig(
        run=_with_period(run),
        directory=directory,
        port=port,
        max_lead=max_lead,
        acme=acme,
    )
    engine.check(program, mode=mode, listen_everywhere=listen_everywhere)
    with DirectoryLock(program.directory) as lock:  # the process takes it next
        check_new_directory(program.directory, program.run)
        _prepare(program, lock)
    flags = [
        *(["--plain"] if plain else []),
        *(["--listen-everywhere"] if listen_everywhere else []),
        *([] if port is None else ["--port", str(port)]),
        *([] if engine.engine is None else ["--engine", engine.engine]),
        *["--max-failures", str(engine.max_failures)],
        *([] if engine.ray_address is None else ["--ray-address", engine.ray_address]),
    ]
    module = "retrax.launchpad_programs"
    resume = ["--resume", str(program.directory), "--launch", mode]
    process = subprocess.Popen([sys.executable, "-m", module, *resume, *flags])
    return _summary(program, failed=_wait(process) != 0)


def launch_with_arguments(arguments: Sequence[str], *, refused: str) -> int:
    """Launches, and prints how it ended and what to do next.

    Args:
      arguments: of the command line.
      refused: why this process has no network namespace of its own; "" if it has one.

    Raises:
      ValueError: one sentence about what is wrong.
    """
    with contextlib.ExitStack() as stack:
        if resumes(arguments):
            named = not arguments[0].startswith("-")  # the agent, which config.json has
            given = parse_resumed(ResumeProgramArguments, arguments[named:], prog=PROG)
            lock = stack.enter_context(DirectoryLock(given.resume))
            program = _continued(given)
            engine = _checked_engine(given, program)
            also = engine.replay_check(program, mode=given.launch)
            program, notes = resumed(program, also)
            notes += engine.replay_notes(program, mode=given.launch)
        else:
            given, run, spec = _parsed(arguments)
            program = _new(given, run)
            engine = _checked_engine(given, program)
            if given.launch == "sync":
                return _train(run, given)
            _check_processes(run, given.launch)
            checked_agent(run, spec)
            notes = [describe_default_preset(run.entry, run.environment, spec)]
            lock = stack.enter_context(DirectoryLock(program.directory))
            check_new_directory(program.directory, program.run)
        notes += engine.network(
            refused, mode=given.launch, listen_everywhere=given.listen_everywhere
        )
        opened = stack.enter_context(engine.open(program, mode=given.launch))
        _prepare(program, lock)
        run = program.run
        acting = "workers" if program.has_workers else "actors"
        tell(
            f"preset {run.preset}, {run.steps} steps, {run.num_actors} {acting} * "
            f"{run.environments_per_actor} environments, run directory {program.directory}"
        )
        outcome = run_program(program, opened, mode=given.launch, plain=given.plain, notes=notes)
        return _finish(program.directory, outcome, given)


def _checked_engine(given: Any, program: ProgramConfig) -> EngineOptions:
    engine = EngineOptions(
        engine=given.engine, ray_address=given.ray_address, max_failures=given.max_failures
    )
    engine.check(program, mode=given.launch, listen_everywhere=given.listen_everywhere)
    return engine


def _parsed(arguments: Sequence[str]) -> tuple[Any, RunConfig, EnvironmentSpec]:
    """The arguments of a new program, its resolved run, and the spec of its environment."""
    specs: list[EnvironmentSpec] = []

    def make_spec(config: RunConfig) -> EnvironmentSpec:
        specs.append(spec_of(config))
        return specs[-1]

    given, run = parse_launch(arguments, make_spec)
    return given, run, specs[-1]


def _train(run: RunConfig, given: Any) -> int:
    """`--launch sync`: the loop of one process, with several actors."""
    summary = train(run, given.run_directory, plain=given.plain)
    directory = summary.directory
    if summary.interrupted:
        tell(f"Stopped by you. To continue: retrax train --resume {directory}")
    print(f"Run in {directory}. Next: retrax evaluate {directory}  |  retrax plot {directory}")
    return 0


def _new(given: Any, run: RunConfig) -> ProgramConfig:
    return ProgramConfig(
        run=run, directory=given.run_directory, port=given.port, acme=given.acme, **_lead(given)
    )


def _lead(given: Any) -> dict[str, int]:
    return {} if given.max_lead is None else {"max_lead": given.max_lead}


def _continued(given: Any) -> ProgramConfig:
    """The program of a run directory."""
    run = read_config(given.resume)
    if not (given.resume / PROGRAM).is_file():
        raise ValueError(
            f"{given.resume} was trained in one process: continue it with retrax train --resume "
            f"{given.resume}"
        )
    if given.launch == "sync":
        raise ValueError(
            f"{given.resume} was run as a program and cannot continue in one thread: leave "
            "--launch sync out."
        )
    run = given.changed(run)
    check_devices(run.learner_devices)
    return read_options(given.resume, run, port=given.port, **_lead(given))


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


def _prepare(program: ProgramConfig, lock: DirectoryLock) -> None:
    """Makes the run directory."""
    lock.acquire()
    write_config(program.directory, program.run)
    write_options(program)


def _summary(program: ProgramConfig, *, failed: bool) -> LaunchSummary:
    path = program.directory / "status.json"
    status = json.loads(path.read_text()) if path.is_file() else {}
    steps = status.get("steps", 0)
    finished = not failed and steps >= (program.run.steps or 0)
    return LaunchSummary(program.directory, steps, status.get("updates", 0), finished, failed)


def _finish(directory: Path, outcome: Any, given: Any) -> int:
    at = f"Snapshot at {outcome.snapshot} steps. " if outcome.snapshot is not None else ""
    if not outcome.finished:
        why = "A node failed. " if outcome.ending.failed else "Stopped by you. "
        options = f" --engine {given.engine}" if given.engine else ""
        options += " --launch local_mt" if given.launch == "local_mt" else ""
        tell(f"{why}{at}To continue: {PROG} --resume {directory}{options}")
    print(
        f"Run in {directory}. Next: retrax evaluate {directory}  |  retrax plot {directory}",
        flush=True,
    )
    return 1 if outcome.ending.failed else 0
