"""`retrax train`."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from ..environments import make
from . import config as configs
from .config import RunConfig
from .parsing import parse, scan, tell, wants_help
from .training import RunFailedError, Summary, train

_SNAPSHOTS = 5  # in a run, by default
_LOGS = 100
_MAX_LOG_STEPS = 10_000

_USAGE = """\
usage: retrax train AGENT --environment ID [OPTIONS]
       retrax train --resume RUN [--steps N] [--plain]

Train an agent in one process, or go on with a run from its newest snapshot. Ctrl-C leaves a
snapshot too.

  AGENT             {agents}
  --environment ID  catch, a gymnasium id (CartPole-v1), dm_control:cartpole/swingup or ALE/Pong-v5
  --resume RUN      a run directory
  --steps N         the last step, over all environments

`retrax train AGENT --help` lists all options: the run's, and every field of the agent's config.
"""

AgentConfig = TypeVar("AgentConfig")
_Optional = Annotated[int | None, tyro.conf.arg(metavar="N")]
_Switch = tyro.conf.FlagCreatePairsOff[bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainArguments(Generic[AgentConfig]):
    """Train an agent in one process. What is not given comes from the preset."""

    environment: Annotated[str, tyro.conf.arg(metavar="ID")]
    """catch, a gymnasium id (CartPole-v1), dm_control:cartpole/swingup or a game (ALE/Pong-v5);
    switches may follow (deep_sea,size=20)."""

    preset: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Where the agent's fields come from; paper for images and small for vectors if not given."""

    steps: _Optional = None
    """Time steps over all environments; if not given, as many as solve the task."""

    seed: int = 0
    """The same seed on the same machine gives the same run, bit for bit."""

    num_envs: int = 8
    """Environments stepped together."""

    run_directory: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Where the run is kept; if not given, a new folder under runs/."""

    snapshot_every: _Optional = None
    """Steps between snapshots; a fifth of the run if not given. There is one at the end, always."""

    log_every: _Optional = None
    """Steps between rows of metrics.csv; if not given a hundredth of the run, at most 10,000."""

    plain: _Switch = False
    """Log lines in place of a progress bar."""

    agent: tyro.conf.FlagConversionOff[AgentConfig]
    """The agent's config."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeArguments:
    """Go on with a run from its newest snapshot."""

    resume: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """The run directory."""

    steps: _Optional = None
    """A new last step; the run's own if not given."""

    plain: _Switch = False
    """Log lines in place of a progress bar."""


def train_command(arguments: Sequence[str]) -> int:
    """Trains, and says where the run is and what to do next.

    Returns:
      The exit status: 1 if the run failed, else 0.
    """
    agents = ", ".join(sorted(configs.AGENTS))
    resumes = any(argument.partition("=")[0] == "--resume" for argument in arguments)
    try:
        if resumes:
            return _finish(_resume(arguments))
        if arguments and not arguments[0].startswith("-"):
            return _finish(_train(arguments[0], arguments[1:]))
    except RunFailedError as failure:
        tell(f"retrax: {failure}")
        return 1
    if not wants_help(arguments):
        raise ValueError(
            f"retrax train needs an agent first ({agents}): retrax train AGENT --environment ID"
        )
    print(_USAGE.format(agents=agents), end="")
    return 0


def _train(agent: str, arguments: Sequence[str]) -> Summary:
    preset = _preset(agent, arguments)
    agent_config = configs.preset_config(agent, preset)
    generic: Any = TrainArguments
    form = generic[type(agent_config)]
    default: Any = TrainArguments(environment=tyro.MISSING, agent=agent_config)
    given = parse(
        form,
        arguments,
        prog=f"retrax train {agent}",
        default=default,
        description=f"Train {agent} in one process. Defaults of the agent: preset {preset}.",
    )
    steps = given.steps
    if steps is None:
        steps = _default_steps(agent, given.environment)
    if steps < 1:
        raise ValueError(f"--steps must be at least 1, got {steps}.")
    run = RunConfig(
        agent=agent,
        environment=given.environment,
        preset=preset,
        steps=steps,
        seed=given.seed,
        num_envs=given.num_envs,
        snapshot_every=_given(given.snapshot_every, max(1, steps // _SNAPSHOTS)),
        log_every=_given(given.log_every, min(_MAX_LOG_STEPS, max(1, steps // _LOGS))),
        agent_config=given.agent,
    )
    directory = given.run_directory or _new_directory(run)
    _check_directory(directory, run)
    return train(run, directory, plain=given.plain)


def _resume(arguments: Sequence[str]) -> Summary:
    given = parse(ResumeArguments, arguments, prog="retrax train")
    run = configs.read_config(given.resume)
    if (given.resume / configs.PROGRAM).is_file():
        raise ValueError(
            f"{given.resume} was trained by a program of many processes, whose actors keep their "
            f"own states: go on with retrax launch --resume {given.resume}"
        )
    if given.steps is not None:
        run = dataclasses.replace(run, steps=given.steps)
    return train(run, given.resume, resume=True, plain=given.plain)


def _finish(summary: Summary) -> int:
    if summary.interrupted:
        tell(f"Stopped by you. To go on: retrax train --resume {summary.directory}")
    print(
        f"Run in {summary.directory}. Next: retrax evaluate {summary.directory}"
        f"  |  retrax plot {summary.directory}"
    )
    return 0


def _preset(agent: str, arguments: Sequence[str]) -> str:
    """Decides the preset before the fields are parsed, since it gives their defaults."""
    presets = configs.agent_package(agent).PRESETS
    preset, environment = scan(arguments, "--preset"), scan(arguments, "--environment")
    if preset is not None or environment is None:
        return preset or next(iter(presets))
    return configs.default_preset(agent, environment, _spec(environment))


def _default_steps(agent: str, environment: str) -> int:
    return configs.default_steps(agent, environment, _spec(environment))


def _spec(environment: str) -> Any:
    probe = make(environment)
    try:
        return probe.spec
    finally:
        probe.close()


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _new_directory(run: RunConfig) -> Path:
    name = f"{run.agent}-{run.environment.replace('/', '-')}-{run.seed}"
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _check_directory(directory: Path, run: RunConfig) -> None:
    """Refuses a directory that would be written over."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ValueError(f"--run-directory {directory} is a file.")
    if not any(directory.iterdir()):
        return
    if not (directory / "config.json").exists():
        raise ValueError(f"--run-directory {directory} is not empty, and holds no run.")
    changed = configs.differences(configs.read_config(directory), run)
    if changed:
        raise ValueError(
            f"{directory} holds a run with another config ({'; '.join(changed)}): choose another "
            "--run-directory."
        )
    raise ValueError(f"{directory} holds this run already: retrax train --resume {directory}")
