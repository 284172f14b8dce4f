"""`retrax launch`: its arguments, checked before any process starts."""

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import psutil
import tyro

from ..environments import make
from ..experiments import config as configs
from ..experiments.config import RunConfig
from ..experiments.parsing import parse, scan, tell, wants_help
from ..experiments.snapshots import Snapshots
from . import network
from .config import SERVING, ProgramConfig, write_options
from .running import Outcome, run_program
from .synchronous import run_synchronously

_SNAPSHOTS = 5  # in a run, by default
_LOGS = 100
_MAX_LOG_STEPS = 10_000
_ACTOR_BYTES = 300e6  # memory of an actor's process, at least
_PROG = "retrax launch"

AgentConfig = TypeVar("AgentConfig")
Launch = Literal["local_mp", "local_mt", "sync"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Common:
    launch: Launch = "local_mp"
    """local_mp: processes. local_mt: threads of one process. sync: everything in one thread, in a
    fixed order, so the same every time: for debuggers."""

    plain: bool = False
    """Log lines in place of a live table."""

    listen_everywhere: bool = False
    """Listen on all interfaces, and be reachable from other machines; there is no password."""

    port: int | None = None
    """The first of 3 ports to listen on; free ones are picked if not given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchArguments(_Common, Generic[AgentConfig]):
    """Train an agent as a program of many processes around Reverb."""

    environment: str
    """catch, a gymnasium id (CartPole-v1), dm_control:cartpole/swingup or a game (ALE/Pong-v5);
    switches may follow (deep_sea,size=20)."""

    num_actors: int = 2
    """Actors, each a process."""

    environments_per_actor: int = 1
    """Environments of each actor, for which it decides at once."""

    preset: str | None = None
    """Where the agent's fields come from; paper for images and small for vectors if not given."""

    steps: int | None = None
    """Time steps over all actors; if not given, as many as solve the task."""

    seed: int = 0
    """Of environments and networks; only sync gives the same run again."""

    run_directory: Path | None = None
    """Where the run is kept; if not given, a new folder under runs/."""

    snapshot_every: int | None = None
    """Steps between snapshots; a fifth of the run if not given. There is one at the end, always."""

    log_every: int | None = None
    """Steps between rows of metrics.csv; a hundredth of the run, at most 10,000, if not given."""

    actor_update_period: int = 50
    """Time steps of an actor between fetches of parameters."""

    evaluation_episodes: int = 20
    """Episodes of one evaluation."""

    agent: tyro.conf.FlagConversionOff[AgentConfig]
    """The agent's config."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeArguments(_Common):
    """Go on with a program from its newest snapshot."""

    resume: Path
    """The run directory."""

    steps: int | None = None
    """A new last step; the run's own if not given."""


def launch(arguments: Sequence[str], *, network_note: str) -> int:
    """Launches, and says how it ended and what to do next."""
    agent, arguments = _agent(arguments)
    if scan(arguments, "--resume") is not None:
        given = parse(ResumeArguments, arguments, prog=_PROG)
        config = _resumed(given)
    else:
        given = _parse_new(agent, arguments)
        config = _new(agent, given)
    if given.port is not None:
        network.check_ports(given.port, len(SERVING))
    _prepare(config)
    if given.launch == "sync":
        return _finish(config, run_synchronously(config, plain=given.plain))
    return _finish(
        config, run_program(config, given.launch, plain=given.plain, notes=[network_note])
    )


def _agent(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    if arguments and not arguments[0].startswith("-"):
        configs.agent_package(arguments[0])
        return arguments[0], arguments[1:]
    if wants_help(arguments) or scan(arguments, "--resume") is not None:
        return "reactor", arguments
    raise ValueError(
        f"{_PROG} needs an agent first, one of {', '.join(sorted(configs.AGENTS))}: "
        f"{_PROG} AGENT --environment ID --num-actors N"
    )


def _parse_new(agent: str, arguments: Sequence[str]) -> Any:
    preset, environment = scan(arguments, "--preset"), scan(arguments, "--environment")
    if preset is None and environment is not None:
        preset = configs.default_preset(agent, environment, _spec(environment))
    preset = preset or next(iter(configs.agent_package(agent).PRESETS))
    agent_config = configs.preset_config(agent, preset)
    form = LaunchArguments[type(agent_config)]  # type: ignore[misc, valid-type]
    default: Any = LaunchArguments(environment=tyro.MISSING, preset=preset, agent=agent_config)
    return parse(form, arguments, prog=f"{_PROG} {agent}", default=default)


def _new(agent: str, given: Any) -> ProgramConfig:
    _check_actors(given.num_actors, given.launch)
    if given.environments_per_actor < 1:
        raise ValueError(
            f"--environments-per-actor must be at least 1, got {given.environments_per_actor}."
        )
    steps = given.steps
    if steps is None:
        steps = configs.default_steps(agent, given.environment, _spec(given.environment))
    if steps < 1:
        raise ValueError(f"--steps must be at least 1, got {steps}.")
    run = RunConfig(
        agent=agent,
        environment=given.environment,
        preset=given.preset,
        steps=steps,
        seed=given.seed,
        num_envs=given.num_actors * given.environments_per_actor,
        snapshot_every=given.snapshot_every or max(1, steps // _SNAPSHOTS),
        log_every=given.log_every or min(_MAX_LOG_STEPS, max(1, steps // _LOGS)),
        agent_config=given.agent,
    )
    directory = given.run_directory or _new_directory(run)
    _check_new(directory)
    return ProgramConfig(
        run=run,
        directory=directory,
        environments_per_actor=given.environments_per_actor,
        actor_update_period=given.actor_update_period,
        evaluation_episodes=given.evaluation_episodes,
        port=given.port,
    )


def _resumed(given: Any) -> ProgramConfig:
    run = configs.read_config(given.resume)
    if not (given.resume / configs.PROGRAM).is_file():
        raise ValueError(
            f"{given.resume} was trained in one process, whose metrics have other columns: go on "
            f"with retrax train --resume {given.resume}"
        )
    if given.steps is not None:
        run = dataclasses.replace(run, steps=given.steps)
    options = json.loads((given.resume / configs.PROGRAM).read_text())
    options["port"] = given.port
    snapshots = given.resume / "snapshots"
    newest = None
    if snapshots.is_dir() and (steps := Snapshots(given.resume, writable=False).steps()):
        newest = steps[-1]
    return ProgramConfig(run=run, directory=given.resume, resumed_at=newest, **options)


def _check_actors(num_actors: int, launch: str) -> None:
    if num_actors < 1:
        raise ValueError(f"--num-actors must be at least 1, got {num_actors}.")
    available = psutil.virtual_memory().available
    fitting = max(int(available / _ACTOR_BYTES), 1)
    if launch == "local_mp" and num_actors > fitting:
        raise ValueError(
            f"--num-actors {num_actors} needs {num_actors * _ACTOR_BYTES / 1e9:.1f} GB of memory, "
            f"but {available / 1e9:.1f} GB are available: at most {fitting} fit."
        )


def _check_new(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--run-directory {directory} is a file.")
    if (directory / "config.json").exists():
        raise ValueError(f"{directory} holds a run already: {_PROG} --resume {directory}")
    if directory.exists() and any(directory.iterdir()):
        raise ValueError(f"--run-directory {directory} is not empty, and holds no run.")


def _prepare(config: ProgramConfig) -> None:
    """Makes the run directory, and shows that it can be written to."""
    directory = config.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        configs.write_config(directory, config.run)
        write_options(config)
    except OSError as error:
        raise ValueError(
            f"The run directory {directory} cannot be written to: {error.strerror or error}."
        ) from error
    run = config.run
    tell(
        f"preset {run.preset}, {run.steps} steps, {config.num_actors} actors, "
        f"run directory {directory}"
    )


def _finish(config: ProgramConfig, outcome: Outcome) -> int:
    directory = config.directory
    at = f"Snapshot at {outcome.snapshot} steps. " if outcome.snapshot is not None else ""
    if not outcome.finished:
        why = "A node failed. " if outcome.ending.failed else "Stopped by you. "
        tell(f"{why}{at}To go on: {_PROG} --resume {directory}")
    print(
        f"Run in {directory}. Next: retrax evaluate {directory}  |  retrax plot {directory}",
        flush=True,
    )
    return 1 if outcome.ending.failed else 0


def _spec(environment: str) -> Any:
    probe = make(environment)
    try:
        return probe.spec
    finally:
        probe.close()


def _new_directory(run: RunConfig) -> Path:
    name = f"{run.agent}-{run.environment.replace('/', '-')}-{run.seed}"
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
