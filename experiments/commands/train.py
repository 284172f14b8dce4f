"""`retrax train`."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from ...agents.entry import agent_names
from ...datatypes import EnvironmentSpec, VectorEnvironment
from ...environments.failures import close_quietly
from ...runtime.assembly import MANY, spec_of
from ...runtime.run_directory import PROGRAM, RunConfig, read_config
from ..failing import RunFailedError
from ..parsing import tell, wants_help
from ..training import Summary, train
from .run_arguments import (
    ResumeArguments,
    RunArguments,
    Switch,
    parse_new_run,
    parse_resumed,
    resumes,
)

_USAGE = """\
usage: retrax train AGENT --environment ID [OPTIONS]
       retrax train --resume RUN [--steps N] [--plain]

Train an agent in one process, or continue a run from its newest snapshot. Ctrl-C leaves a snapshot
too.

  AGENT             {agents}, or module:NAME of your own
  --environment ID  catch, a Gymnasium id (CartPole-v1), dm_control:cartpole/swingup, ALE/Pong-v5,
                    or module:NAME of your own
  --resume RUN      a run directory
  --steps N         the last step, over all environments

`retrax train AGENT --help` lists all options: the run's, and every field of the agent's config.
"""

AgentConfig = TypeVar("AgentConfig")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainArguments(RunArguments[AgentConfig]):
    """Train an agent in one process."""

    num_envs: int = 8
    """Environments stepped together."""

    on_device: Switch = False
    """Acts, stores, draws and learns in one compiled function, on the accelerator if there is one:
    for environments written in JAX (catch, memory, deep_sea, CartPole-v1, pgx:ID, module:NAME)."""

    evaluate_every: int = 0
    """Steps between evaluations of the greedy policy, in environments of their own; 0 makes none.
    The last step is evaluated too. The best evaluation so far leaves a snapshot."""


def train_command(arguments: Sequence[str]) -> int:
    """Trains, and prints where the run is and what to do next.

    Returns:
      The exit status: 1 if the run failed, else 0.
    """
    agents = ", ".join(agent_names())
    try:
        if resumes(arguments):
            return _finish(_resume(arguments))
        if arguments and not arguments[0].startswith("-"):
            return _finish(_train(arguments[0], arguments[1:]))
    except RunFailedError as failure:
        tell(f"retrax: {failure}")
        return 1
    if not wants_help(arguments):
        raise ValueError(
            f"retrax train needs an agent first ({agents}, or module:NAME): "
            "retrax train AGENT --environment ID"
        )
    print(_USAGE.format(agents=agents), end="")
    return 0


def _train(agent: str, arguments: Sequence[str]) -> Summary:
    with contextlib.ExitStack() as stack:
        made: list[VectorEnvironment] = []

        def make_spec(config: RunConfig) -> EnvironmentSpec:
            if config.num_envs > MANY:
                return spec_of(config)
            environment = config.make_environment(seed=config.seed, num_envs=config.num_envs)
            stack.callback(close_quietly, environment)
            made.append(environment)
            return environment.spec

        given, config = parse_new_run(
            agent,
            arguments,
            form=TrainArguments,
            prog="retrax train",
            fields=lambda given: {"num_envs": given.num_envs, "on_device": given.on_device},
            make_spec=make_spec,
        )
        config = dataclasses.replace(config, evaluate_every=given.evaluate_every)
        environment = made[0] if made and not config.on_device else None
        return train(config, given.run_directory, plain=given.plain, environment=environment)


def _resume(arguments: Sequence[str]) -> Summary:
    given = parse_resumed(ResumeArguments, arguments, prog="retrax train")
    config = read_config(given.resume)
    if (given.resume / PROGRAM).is_file():
        raise ValueError(
            f"{given.resume} was started by retrax launch: continue it with retrax launch --resume "
            f"{given.resume}"
        )
    return train(given.changed(config), given.resume, resume=True, plain=given.plain)


def _finish(summary: Summary) -> int:
    if summary.interrupted:
        tell(f"Stopped by you. To continue: retrax train --resume {summary.directory}")
    print(
        f"Run in {summary.directory}. Next: retrax evaluate {summary.directory}"
        f"  |  retrax plot {summary.directory}"
    )
    return 0
