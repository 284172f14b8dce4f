"""Arguments of `retrax launch`; the programs are in `launchpad_programs`, above this folder."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import tyro

from ...agents.entry import agent_names
from ...datatypes import EnvironmentSpec
from ...runtime.run_directory import RunConfig
from ..parsing import wants_help
from .run_arguments import OutputArguments, ResumeArguments, RunArguments, Switch, parse_new_run

PROG = "retrax launch"
UPDATE_PERIOD = 50

AgentConfig = TypeVar("AgentConfig")
Mode = Literal["local_mp", "local_mt", "sync"]
Engine = Literal["launchpad", "ray"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramArguments(OutputArguments):
    """How a program runs."""

    launch: Mode = "local_mp"
    """local_mp: processes. local_mt: threads of one process. sync: actors and learner in turn in
    one thread, in a seeded order; the same every time, for debuggers."""

    engine: Engine = "launchpad"
    """launchpad: ends at the first death of a process. ray: starts processes again that die."""

    ray_address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """The head of a running Ray cluster, of which this machine is a part (docs/clusters.md); by
    default, --engine ray starts Ray on this machine."""

    max_failures: int = 5
    """Deaths of the same process in a row, less than a minute apart, that --engine ray forgives."""

    listen_everywhere: Switch = False
    """Listen on all interfaces, in no network namespace: whoever can connect can execute code."""

    port: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """The first of 3 ports to listen on; by default free ones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchArguments(ProgramArguments, RunArguments[AgentConfig]):
    """Train an agent as a program of many processes around Reverb."""

    num_actors: int = 2
    """Actors, each a process."""

    environments_per_actor: int = 1
    """Environments of each actor, stepped together."""

    actor_update_period: int = UPDATE_PERIOD
    """Time steps of an actor between fetches of parameters."""

    acme: Annotated[str | None, tyro.conf.arg(metavar="module:NAME")] = None
    """Your own Acme loggers, observers or environment loop (launchpad_programs/README.md)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeProgramArguments(ProgramArguments, ResumeArguments):
    """Continue a program from its newest snapshot."""


def parse_launch(
    arguments: Sequence[str], make_spec: Callable[[RunConfig], EnvironmentSpec]
) -> tuple[Any, RunConfig]:
    """Parses the arguments of a new program.

    Args:
      arguments: of the command line, the agent first.
      make_spec: as of `parse_new_run`.

    Returns:
      The `LaunchArguments`, and the resolved run.

    Raises:
      ValueError: one sentence about what is wrong.
    """
    agent, rest = _agent(arguments)
    given, run = parse_new_run(
        agent,
        rest,
        form=LaunchArguments,
        prog=PROG,
        num_envs=lambda given: max(1, given.num_actors) * max(1, given.environments_per_actor),
        make_spec=make_spec,
    )
    for name in ("num_actors", "environments_per_actor"):
        if getattr(given, name) < 1:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} must be at least 1, got {getattr(given, name)}.")
    run = dataclasses.replace(
        run, num_actors=given.num_actors, actor_update_period=given.actor_update_period
    )
    return given, run


def _agent(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    names = agent_names()
    if wants_help(arguments):
        return names[0], arguments
    raise ValueError(
        f"{PROG} needs an agent first, one of {', '.join(names)}, or module:NAME: "
        f"{PROG} AGENT --environment ID --num-actors N"
    )
