"""Arguments that `retrax train` and `retrax launch` share, and runs made from them."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from ..agents.entry import agent_names, find_agent
from ..datatypes import EnvironmentSpec
from ..training.run_config import RunConfig, WorkerOptions, new_directory, read_config, seed_runs
from .parsing import parse, parse_known, part, wants_help

_USAGE = """\
usage: {prog} AGENT --environment ID [OPTIONS]
       {prog} --resume RUN [--steps N] [OPTIONS]

{about}

  AGENT             {agents}, or module:NAME of your own
  --environment ID  catch, a Gymnasium id (CartPole-v1), dm_control:cartpole/swingup, ALE/Pong-v5,
                    or module:NAME of your own
  --resume RUN      a run directory, continued from its newest snapshot
  --steps N         the last step, over all environments

`{prog} AGENT --help` lists all options: the run's, and every field of the agent's config.
"""
_CHANGEABLE = ("steps", "learner_devices", "logger")  # when a run is resumed
_KEPT = {
    *(field.name for kind in (RunConfig, WorkerOptions) for field in dataclasses.fields(kind)),
    "run_directory",
}.difference(_CHANGEABLE)

AgentConfig = TypeVar("AgentConfig")
Arguments = TypeVar("Arguments", bound="RunArguments[Any]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunArguments(RunConfig, Generic[AgentConfig]):
    """The fields of a run, and what else its commands take."""

    agent_config: Annotated[tyro.conf.FlagConversionOff[AgentConfig], tyro.conf.arg(name="agent")]
    """The agent's config."""

    workers: tyro.conf.OmitArgPrefixes[WorkerOptions] = RunConfig.workers
    """Workers around a parameter server, in place of actors and a learner."""

    run_directory: Path | None = None
    """Directory of the run; by default a new folder under runs/."""

    resume: Path | None = None
    """Continue the run of this directory from its newest snapshot. The run keeps its config, except
    for --steps, --learner-devices and --logger."""

    plain: bool = False
    """Log lines instead of a progress bar or a live table."""

    def __post_init__(self) -> None:
        """Leaves the checks to `run`."""

    @classmethod
    def resumed(cls: type[Arguments], directory: Path) -> Arguments:
        """The arguments that continue a run as it is."""
        first, *_ = seed_runs(directory) or [directory]
        return cls(**vars(read_config(first)), resume=directory)

    @property
    def hidden(self) -> set[str]:
        """Fields that are no options."""
        if self.resume is not None:
            return _KEPT
        fields = {"agent", "search_path"}
        return fields if self.agent_config else {*fields, "agent_config"}  # not known yet

    def run(self, **changes: Any) -> RunConfig:
        """The run, with changes; ValueError says in one sentence what is wrong."""
        return part(self, RunConfig, **changes)


def parse_run(
    form: type[Arguments],
    arguments: Sequence[str],
    *,
    prog: str,
    make_spec: Callable[[RunConfig], EnvironmentSpec],
) -> tuple[Arguments, RunConfig, Path, EnvironmentSpec | None]:
    """Parses the arguments of a new run, or of one that is resumed.

    The agent's default values depend on the preset, and the preset on the environment, which is
    therefore made before the other arguments are parsed.

    `form` has what else a command takes; `make_spec` is called once, for a new run.

    Returns:
      The parsed arguments; the run, with its preset; its directory, absolute; and the spec of its
      environment, None if it is resumed.
    """
    here = Path.cwd()  # an environment may change it
    agent, words = "", list(arguments)
    if words and not words[0].startswith("-"):
        agent = words.pop(0)
    kind: Any = form
    start = form(agent=agent, environment="", agent_config=None, search_path=str(here))
    early, _ = parse_known(kind[type(None)], words, prog=prog, default=start)
    if early.resume is not None:
        return _parse_resumed(kind, early.resume.absolute(), words, prog)
    if not agent:
        names = ", ".join(agent_names())
        if wants_help(words):
            print(_USAGE.format(prog=prog, about=form.__doc__, agents=names), end="")
            raise SystemExit(0)
        raise ValueError(
            f"{prog} needs an agent first ({names}, or module:NAME): {prog} AGENT --environment ID"
        )
    entry, preset, spec = find_agent(agent), early.preset, None
    if early.environment:
        spec = make_spec(early.run())
        preset = preset or entry.preset_of(early.environment, spec)
    preset_of = "" if preset else ", the first; an --environment ID has its own"
    preset = preset or next(iter(entry.presets))
    config = entry.config_of(preset)
    default = dataclasses.replace(start, environment=tyro.MISSING, agent_config=config)
    about = f"{form.__doc__}\n\nDefaults of the agent: preset {preset}{preset_of}."
    given = parse(
        kind[type(config)], words, prog=f"{prog} {agent}", default=default, description=about
    )
    assert spec is not None, "an environment is required"
    run = given.run(preset=preset)
    return given, run, here / (given.run_directory or new_directory(run)), spec


def _parse_resumed(
    form: Any, directory: Path, words: Sequence[str], prog: str
) -> tuple[Any, RunConfig, Path, None]:
    default = form.resumed(directory)
    for word in parse_known(form[type(None)], words, prog=prog, default=default)[1]:
        flag = word.partition("=")[0].replace("_", "-")
        if flag.startswith("--agent.") or flag[2:].replace("-", "_") in _KEPT:
            *others, last = (f"--{name.replace('_', '-')}" for name in _CHANGEABLE)
            raise ValueError(
                f"{flag} cannot be changed: a run that is resumed keeps its config, except for "
                f"{', '.join(others)} and {last}."
            )
    given = parse(form[type(None)], words, prog=prog, default=default)
    return given, given.run(), directory, None
