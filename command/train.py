"""`retrax train`: a run, or several whose seeds differ; and the arguments that `launch` has too."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import tyro

from ..agents.entry import agent_names, find_agent
from ..basics.sentences import typed
from ..basics.validation import Range
from ..datatypes import EnvironmentSpec, VectorEnvironment
from ..environments.failures import close_quietly
from ..training.assembly import MANY, checked_agent, open_snapshots, spec_of
from ..training.process import DirectoryLock
from ..training.run_config import (
    PROGRAM,
    RunConfig,
    WorkerOptions,
    new_directory,
    new_seed_runs,
    read_config,
    seed_runs,
    write_config,
)
from .parsing import HELP, Hidden, parse, parse_known, part, tell, with_types
from .training import RunFailedError, own_code, train_together

_USAGE = """\
usage: {prog} AGENT --environment ID [OPTIONS]
       {prog} --resume RUN [--steps N] [OPTIONS]

{about}

AGENT is one of {agents}, or your own module:NAME; {prog} AGENT --help lists all options.
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
    """Log lines instead of a progress bar or a live line."""

    def __post_init__(self) -> None:
        """Leaves the checks to `run`."""

    @classmethod
    def resumed(cls: type[Arguments], directory: Path) -> Arguments:
        """The arguments that continue a run as it is."""
        if (directory / PROGRAM).is_file():
            how = f"continue it with {typed('launch', '--resume', directory)}"
            raise ValueError(f"{directory} was started by retrax launch: {how}")
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
    therefore made first, by one call of `make_spec`. Returns the arguments; the run, with its
    preset; its absolute directory; its spec, None if resumed.
    """
    here = Path.cwd()  # an environment may change it
    agent, words = "", list(arguments)
    if words and not words[0].startswith("-"):
        agent = words.pop(0)
    start = form(agent=agent, environment="", search_path=str(here))
    early, _ = parse_known(start, words, prog=prog)
    if early.resume is not None:
        directory = early.resume.absolute()
        default = form.resumed(directory)
        if agent not in ("", default.agent):
            raise ValueError(f"{directory} is a run of {default.agent}, got {agent}.")
        given = _parse_resumed(default, words, prog)
        for run in seed_runs(directory) or [directory]:
            if (given.steps or 0) < (read_config(run).steps or 0):
                open_snapshots(run, given.steps)  # refuses fewer steps than it has taken
        return given, given.run(), directory, None
    if not agent:
        names = ", ".join(agent_names())
        if HELP & {*words}:
            print(_USAGE.format(prog=prog, about=form.__doc__, agents=names), end="")
            raise SystemExit(0)
        raise ValueError(f"Name an agent ({names}, or module:NAME): {prog} AGENT --environment ID")
    entry, preset, spec = find_agent(agent), early.preset, None
    if early.environment:
        spec = make_spec(early.run())
        preset = preset or entry.preset_of(early.environment, spec)
    preset_of = "" if preset else " (with --environment ID, the default preset for it)"
    preset = preset or next(iter(entry.presets))
    config = entry.config_of(preset)
    default = dataclasses.replace(start, environment=tyro.MISSING, agent_config=config)
    kind: Any = tyro.conf.FlagConversionOff[type(config)]  # type: ignore[misc]
    listed = tyro.conf.arg(help=f"{', '.join(entry.presets)}; by default the environment's.")
    named: Any = Annotated[kind, tyro.conf.arg(name="agent")]
    default = with_types(default, {"agent_config": named, "preset": Annotated[str | None, listed]})
    about = f"{form.__doc__}\n\nDefaults of the agent: preset {preset}{preset_of}."
    given = parse(default, words, prog=f"{prog} {agent}", description=about)
    assert spec is not None, "an environment is required"
    run = given.run(preset=preset)
    return given, run, here / (given.run_directory or new_directory(run)), spec


def _parse_resumed(default: Arguments, words: Sequence[str], prog: str) -> Arguments:
    kept = {"run_directory", "seeds", *get_type_hints(RunConfig), *get_type_hints(WorkerOptions)}
    hide, hints = cast(Any, Hidden), get_type_hints(type(default), include_extras=True)
    hidden = {name: hide[hints[name]] for name in kept.difference(_CHANGEABLE) & hints.keys()}
    _, unknown = parse_known(with_types(default, hidden), words, prog=prog)
    for word in unknown:
        flag = word.partition("=")[0].replace("_", "-")
        if flag.startswith("--agent.") or flag[2:].replace("-", "_") in kept:
            raise ValueError(
                f"{flag} cannot be given: a resumed run keeps its config, except for "
                f"--{', --'.join(_CHANGEABLE).replace('_', '-')}."
            )
    return parse(with_types(default, hidden), words, prog=prog)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainArguments(RunArguments):
    """Train an agent in one process, or continue a run. Ctrl-C also saves a snapshot."""

    seeds: Annotated[int, Range(1)] = 1
    """Number of runs, with the seeds from --seed on, each in its own directory and process. With
    --on-device they are computed together."""

    jobs: Annotated[int, Range(1)] = 1
    """Number of runs at a time, if there are several seeds. They share the cores."""


def train_command(arguments: Sequence[str]) -> int:
    """Trains, prints where the run is and what to do next, and returns 1 if it failed, else 0."""
    with contextlib.ExitStack() as stack:
        made: list[VectorEnvironment] = []

        def make_spec(config: RunConfig) -> EnvironmentSpec:
            is_one = config.num_actors == 1 and config.actor_update_period is None
            if not is_one or config.on_device or config.num_envs > MANY:
                return spec_of(config)
            environment = config.make_environment(seed=config.seed, num_envs=config.num_envs)
            stack.callback(close_quietly, environment)
            made.append(environment)
            return environment.spec

        given, run, directory, spec = parse_run(
            TrainArguments, arguments, prog="retrax train", make_spec=make_spec
        )
        begun = seed_runs(directory) if spec is None else []
        if max(given.seeds, len(begun)) > 1 and run.on_device and run.logger is not None:
            raise ValueError(f"--logger must be None with --seeds on a device, got {run.logger}.")
        if not begun and (spec is None or given.seeds == 1):
            options = {"environment": made[0] if made else None, "resume": spec is None}
            return _train({directory: run}, directory, plain=given.plain, **options)
    runs = {path: dataclasses.replace(run, seed=read_config(path).seed) for path in begun}
    if spec is not None:
        run = run.resolve(spec)
        with own_code(run):
            agent = checked_agent(run, spec)
        if run.on_device:
            from ..device.loop import check_seeds  # before anything is done for each seed

            check_seeds(run, agent, spec, given.seeds)
        runs = new_seed_runs(directory, run, given.seeds)
    from .grid import Cell, run_shown  # with all that benchmarks need

    with DirectoryLock(directory) as lock:
        cells = [Cell(config, path, episodes=0) for path, config in runs.items()]
        if run.on_device:
            left = [cell for cell in cells if cell.score is None] or cells
            runs = {cell.directory: cell.config for cell in left}
            return _train(runs, directory, resume=spec is None, plain=given.plain)
        lock.acquire()
        for path, config in runs.items():
            with DirectoryLock(path) as own:
                own.acquire()  # makes it
                write_config(path, config)
        end, is_stopped = run_shown(cells, jobs=given.jobs, directory=directory, plain=given.plain)
    return _finish(directory, is_stopped=is_stopped, has_failed=bool(end.failed))


def _train(runs: Mapping[Path, RunConfig], directory: Path, **options: Any) -> int:
    """`train_together`, and what to do next; `directory` holds the run, or all of them."""
    try:
        summaries, _ = train_together(runs, **options)
    except RunFailedError as failure:
        tell(f"retrax: {failure}")
        return 1 if directory in runs else _finish(directory, has_failed=True)
    return _finish(directory, is_stopped=any(summary.interrupted for summary in summaries))


def _finish(directory: Path, *, is_stopped: bool = False, has_failed: bool = False) -> int:
    if is_stopped:
        tell(f"Stopped by you. To continue: {typed('train', '--resume', directory)}")
    names = ["plot"] if (seeds := seed_runs(directory)) else ["evaluate", "plot"]
    following = "; ".join(typed(name, directory) for name in names)
    print(f"Run{'s' if seeds else ''} in {directory}. Next: {following}")
    return int(has_failed)
