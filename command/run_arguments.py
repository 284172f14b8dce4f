"""Arguments that `retrax train` and `retrax launch` share, and runs made from them."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro

from ..agents.entry import agent_names, find_agent
from ..datatypes import EnvironmentSpec
from ..training.run_config import (
    PROGRAM,
    RunConfig,
    WorkerOptions,
    new_directory,
    read_config,
    seed_runs,
)
from .parsing import Hidden, parse, parse_known, part, wants_help, with_types

_USAGE = """\
usage: {prog} AGENT --environment ID [OPTIONS]
       {prog} --resume RUN [--steps N] [OPTIONS]

{about}

AGENT is one of {agents}, or module:NAME of your own; {prog} AGENT --help lists all options.
"""
_CHANGEABLE = ("steps", "learner_devices", "logger")  # when a run is resumed

Arguments = TypeVar("Arguments", bound="RunArguments")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunArguments(RunConfig):
    """The fields of a run, and what else its commands take."""

    agent: Hidden[str]
    search_path: Hidden[str] = ""
    agent_config: Hidden[Any] = None  # until the agent is known
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
        if (directory / PROGRAM).is_file():
            raise ValueError(
                f"{directory} was started by retrax launch: continue it with retrax launch "
                f"--resume {directory}"
            )
        first, *_ = seed_runs(directory) or [directory]
        return cls(**vars(read_config(first)), resume=directory)

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
    therefore made first, by one call of `make_spec`.

    Returns:
      The arguments; the run, with its preset; its absolute directory; its spec, None if resumed.
    """
    here = Path.cwd()  # an environment may change it
    agent, words = "", list(arguments)
    if words and not words[0].startswith("-"):
        agent = words.pop(0)
    start = form(agent=agent, environment="", search_path=str(here))
    early, _ = parse_known(form, words, prog=prog, default=start)
    if early.resume is not None:
        directory = early.resume.absolute()
        given = _parse_resumed(form.resumed(directory), words, prog)
        return given, given.run(), directory, None
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
    kind: Any = tyro.conf.FlagConversionOff[type(config)]  # type: ignore[misc]
    default = with_types(default, {"agent_config": Annotated[kind, tyro.conf.arg(name="agent")]})
    about = f"{form.__doc__}\n\nDefaults of the agent: preset {preset}{preset_of}."
    form, prog = type(default), f"{prog} {agent}"
    given = parse(form, words, prog=prog, default=default, description=about)
    assert spec is not None, "an environment is required"
    run = given.run(preset=preset)
    return given, run, here / (given.run_directory or new_directory(run)), spec


def _parse_resumed(default: Arguments, words: Sequence[str], prog: str) -> Arguments:
    kept = {field.name for kind in (RunConfig, WorkerOptions) for field in dataclasses.fields(kind)}
    kept = {*kept, "run_directory", "seeds"}.difference(_CHANGEABLE)
    hide: Any = Hidden
    hints = get_type_hints(type(default), include_extras=True)
    hidden = {name: hide[hint] for name, hint in hints.items() if name in kept}
    default = with_types(default, hidden)
    given, unknown = parse_known(type(default), words, prog=prog, default=default)
    if wants_help(unknown):
        parse(type(default), words, prog=prog, default=default)
    for word in unknown:
        *others, last = (f"--{name.replace('_', '-')}" for name in _CHANGEABLE)
        raise ValueError(
            f"{word.partition('=')[0].replace('_', '-')} cannot be given: a run that is resumed "
            f"keeps its config, except for {', '.join(others)} and {last}."
        )
    return given
