"""Arguments of `retrax launch`; the programs are in `launchpad_programs`, above this folder."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import tyro

from ...agents.entry import agent_names
from ...datatypes import EnvironmentSpec
from ...runtime.run_directory import RunConfig
from ...runtime.workers.options import WorkerOptions
from ..parsing import scan, wants_help
from .run_arguments import (
    OptionalCount,
    OutputArguments,
    ResumeArguments,
    RunArguments,
    Switch,
    parse_new_run,
)

PROG = "retrax launch"
UPDATE_PERIOD = 50
ENVIRONMENTS_PER_ACTOR = 4  # two actors have as many as `retrax train`; docs/results/programs

AgentConfig = TypeVar("AgentConfig")
Mode = Literal["local_mp", "local_mt", "sync"]
EngineName = Literal["launchpad", "ray"]
Topology = Literal["actors_and_learner", "parameter_server"]
_OF_WORKERS = (
    *("num_workers", "max_staleness", "gradients_per_fetch", "compress_gradients", "decoupled"),
)
_OF_ACTORS = ("num_actors", "actor_update_period", "acme")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramArguments(OutputArguments):
    """How a program runs."""

    launch: Mode = "local_mp"
    """local_mp: processes. local_mt: threads of one process. sync: actors and learner in turn in
    one thread, in a seeded order; the same every time, for debuggers."""

    engine: Annotated[EngineName | None, tyro.conf.arg(metavar="{launchpad,ray}")] = None
    """What runs the processes. launchpad: ends at the first death of a process. ray: starts
    processes again that die. By default launchpad where it is installed, and ray elsewhere."""

    ray_address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """The head of a running Ray cluster, of which this machine is a part (docs/clusters.md); by
    default, --engine ray starts Ray on this machine."""

    max_lead: OptionalCount = None
    """Time steps that actors take at most while an update is due that the learner has not begun;
    256 by default. Under launchpad, Reverb's limits hold instead."""

    max_failures: int = 5
    """Deaths of the same process in a row, less than a minute apart, that --engine ray forgives."""

    listen_everywhere: Switch = False
    """Listen on all interfaces, in no network namespace: whoever can connect can execute code."""

    port: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """The first of 3 ports on which --engine launchpad listens; by default free ones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchArguments(ProgramArguments, RunArguments[AgentConfig]):
    """Train an agent as a program of many processes."""

    topology: Topology = "actors_and_learner"
    """actors_and_learner: actors, a replay and one learner. parameter_server: workers, which
    act, store and compute gradients, and one server that applies them, as Reactor's (3.5) and
    ACER's (4)."""

    num_actors: int = 2
    """Actors, each a process."""

    num_workers: int = 2
    """Workers of a parameter server, each a process with a replay and an update schedule of its
    own."""

    environments_per_actor: OptionalCount = None
    """Environments of each actor or worker, stepped together; by default 4, and 1 for workers and
    with --acme."""

    max_staleness: OptionalCount = None
    """Gradients of parameters that are more versions older than the server's are dropped; by
    default none is."""

    gradients_per_fetch: int = 1
    """Gradients that a worker sends between two fetches of parameters."""

    compress_gradients: Switch = False
    """Send gradients as bfloat16."""

    decoupled: Switch = False
    """Each worker acts and learns in two threads, as Reactor's (3.5), instead of in turn."""

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
    has_workers = scan(rest, "--topology") == "parameter_server"
    _check_options(rest, has_workers=has_workers)
    number = "num_workers" if has_workers else "num_actors"
    given, run = parse_new_run(
        agent,
        rest,
        form=LaunchArguments,
        prog=PROG,
        fields=lambda given: _fields(given, max(1, getattr(given, number))),
        make_spec=make_spec,
    )
    for name in (number, "environments_per_actor"):
        if (count := getattr(given, name)) is not None and count < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {count}.")
    if given.decoupled and given.launch == "sync":
        raise ValueError("--decoupled needs threads: leave --launch sync out.")
    return given, run


def _fields(given: Any, number: int) -> dict[str, Any]:
    """Fields of the run, which has so many actors or workers."""
    each = given.environments_per_actor
    if each is None:
        is_single = given.topology == "parameter_server" or given.acme is not None
        each = 1 if is_single else ENVIRONMENTS_PER_ACTOR
    fields = {"num_envs": number * max(1, each), "num_actors": number}
    if given.topology == "actors_and_learner":
        return {**fields, "actor_update_period": given.actor_update_period}
    options = {name: getattr(given, name) for name in _OF_WORKERS}
    return {**fields, "workers": WorkerOptions(**{**options, "num_workers": number})}


def _check_options(arguments: Sequence[str], *, has_workers: bool) -> None:
    """Refuses options of the other topology, which would do nothing."""
    for name in _OF_ACTORS if has_workers else _OF_WORKERS:
        option = f"--{name.replace('_', '-')}"
        names = {argument.partition("=")[0].replace("_", "-") for argument in arguments}
        if option in names:
            other = "without" if has_workers else "with"
            raise ValueError(f"{option} is allowed only {other} --topology parameter_server.")


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
