"""Arguments that `retrax train` and `retrax launch` share, and runs made from them."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from ...agents.entry import AgentEntry, find_agent
from ...datatypes import EnvironmentSpec
from ...runtime.presets import default_preset, preset_config
from ...runtime.run_directory import RunConfig, new_directory
from ..options import options_of
from ..parsing import parse, scan

AgentConfig = TypeVar("AgentConfig")
OptionalCount = Annotated[int | None, tyro.conf.arg(metavar="N")]
Switch = tyro.conf.FlagCreatePairsOff[bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputArguments:
    """What the terminal shows."""

    plain: Switch = False
    """Log lines instead of a progress bar or a live table."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunArguments(OutputArguments, Generic[AgentConfig]):
    """A new run. What is not given comes from the preset."""

    environment: Annotated[str, tyro.conf.arg(metavar="ID")]
    """catch, a Gymnasium id (CartPole-v1), dm_control:cartpole/swingup, a game (ALE/Pong-v5), or
    module:NAME of your own; switches may follow (deep_sea,size=20)."""

    preset: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Where the agent's fields come from; by default the agent's preset for the environment."""

    steps: OptionalCount = None
    """Time steps over all environments; by default as many as the preset needs."""

    seed: int = 0
    """Seed of everything random. In one process the same seed gives the same run, bit for bit."""

    run_directory: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Where the run is kept; by default a new folder under runs/."""

    snapshot_every: OptionalCount = None
    """Steps between snapshots; by default a fifth of the run. The end always has one."""

    keep_snapshots: int = 2
    """Newest snapshots to keep, beside the one with the best evaluation."""

    log_every: OptionalCount = None
    """Steps between rows of metrics.csv; by default a hundredth of the run, at most 10,000."""

    evaluation_episodes: int = 20
    """Episodes of one evaluation of the greedy policy."""

    learner_devices: int = 1
    """Devices (GPUs) of this machine over which the learner splits each batch."""

    agent: tyro.conf.FlagConversionOff[AgentConfig]
    """The agent's config."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeArguments(OutputArguments):
    """Continue a run from its newest snapshot."""

    resume: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """The run directory."""

    steps: OptionalCount = None
    """A new last step; by default the run's own."""

    learner_devices: OptionalCount = None
    """Devices over which the learner splits each batch; by default the run's own number."""

    def changed(self, config: RunConfig) -> RunConfig:
        """The run with what is given here."""
        given = {"steps": self.steps, "learner_devices": self.learner_devices}
        changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        return dataclasses.replace(config, **changes)


def parse_resumed(form: type[ResumeArguments], arguments: Sequence[str], *, prog: str) -> Any:
    """Parses the arguments that continue a run, into a subclass of `ResumeArguments`.

    Raises:
      ValueError: one sentence about what is wrong; another for options of new runs.
    """
    changeable = [flag for option in options_of(form) for flag in option.flags]
    of_new_runs = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(RunConfig)}
    for word in arguments:
        flag = word.partition("=")[0].replace("_", "-")
        is_of_config = flag.startswith("--agent.") or flag in of_new_runs
        if is_of_config and flag not in changeable:
            raise ValueError(
                f"{flag} cannot be changed: a run that is resumed keeps its config, except for "
                f"{' and '.join(f for f in changeable if f in of_new_runs)}."
            )
    given = parse(form, arguments, prog=prog)
    return dataclasses.replace(given, resume=given.resume.absolute())


def resumes(arguments: Sequence[str]) -> bool:
    """Whether the command line resumes a run."""
    return any(argument.partition("=")[0] == "--resume" for argument in arguments)


def parse_new_run(
    agent: str,
    arguments: Sequence[str],
    *,
    form: Any,
    prog: str,
    fields: Callable[[Any], dict[str, Any]],
    make_spec: Callable[[RunConfig], EnvironmentSpec],
) -> tuple[Any, RunConfig]:
    """Parses the arguments of a new run.

    The agent's default values depend on the preset, and the preset on the environment, which is
    therefore made before the other arguments are parsed.

    Args:
      agent: a registered name or `package.module:NAME`.
      arguments: the rest of the command line.
      form: a subclass of `RunArguments`.
      prog: the command, for help and errors.
      fields: of the run, from the parsed arguments: `num_envs`, and what else the form decides.
      make_spec: the spec of the environment of a run; called once.

    Returns:
      The parsed arguments, with an absolute run directory, and the resolved run.

    Raises:
      ValueError: one sentence about what is wrong.
    """
    entry, here = find_agent(agent), Path.cwd()  # an environment may change it
    preset, environment = scan(arguments, "--preset"), scan(arguments, "--environment")
    spec = None
    if preset is None and environment is not None:
        seed, size = _number(arguments, "--seed", 0), _number(arguments, "--num-envs", 8)
        probe = RunConfig(agent=agent, environment=environment, seed=seed, num_envs=size)
        spec = make_spec(probe)
        preset = default_preset(entry, environment, spec)
    preset = preset or next(iter(entry.presets))
    given = _parse(entry, preset, arguments, form, f"{prog} {agent}")
    config = RunConfig(
        agent=agent,
        environment=given.environment,
        preset=preset,
        steps=given.steps,
        seed=given.seed,
        snapshot_every=given.snapshot_every,
        keep_snapshots=given.keep_snapshots,
        log_every=given.log_every,
        evaluation_episodes=given.evaluation_episodes,
        learner_devices=given.learner_devices,
        agent_config=given.agent,
        search_path=str(here),
        **fields(given),
    )
    directory = here / (given.run_directory or new_directory(config))
    given = dataclasses.replace(given, run_directory=directory)
    return given, config.resolve(spec or make_spec(config))


def _number(arguments: Sequence[str], option: str, default: int) -> int:
    """An option's value; the default where it is missing or no integer, which parsing refuses."""
    try:
        return int(scan(arguments, option) or default)
    except ValueError:
        return default


def _parse(entry: AgentEntry, preset: str, arguments: Sequence[str], form: Any, prog: str) -> Any:
    config = preset_config(entry, preset)
    default = form(environment=tyro.MISSING, agent=config)
    preset_of = f"preset {preset}"
    if scan(arguments, "--environment") is None and scan(arguments, "--preset") is None:
        preset_of += ", the first; an --environment ID has its own"
    description = f"{form.__doc__.strip()}\n\nDefaults of the agent: {preset_of}."
    return parse(form[type(config)], arguments, prog=prog, default=default, description=description)
