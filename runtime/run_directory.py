"""A run: its configuration, and how config.json keeps it."""

import dataclasses
import json
import time
import uuid
from pathlib import Path
from typing import Annotated, Any

from .. import environments
from .._imports import import_from, make_importable
from .._validation import Range, check_fields
from .._writing import replacing
from ..agents.entry import AgentEntry, find_agent
from ..datatypes import EnvironmentSpec, ReplayConfig, VectorEnvironment
from ..environments.pure import PureVector
from ..environments.pure_factory import make_pure
from .config_file import run_fields, values_of
from .device_options import check_device_run
from .directory_lock import LOCK
from .presets import default_preset, default_steps, preset_config
from .seeds import MAX_SEED
from .workers.options import NO_WORKERS, WorkerOptions

PROGRAM = "program.json"  # in the run directory of a program
_ENVS = 8  # of one actor
_ENVS_OF_SEVERAL = 4  # of each of several; two have as many as one alone
_SNAPSHOTS = 5  # in a run, by default
_LOGS = 100
_MAX_LOG_STEPS = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run. What is None comes from the agent's entry: see `resolve`."""

    agent: str
    """The name of a registered agent, or `package.module:NAME` of an `AgentEntry`."""

    environment: str
    """catch, a Gymnasium id (CartPole-v1), dm_control:cartpole/swingup, a game (ALE/Pong-v5), or
    module:NAME of your own; switches may follow (deep_sea,size=20)."""

    preset: str | None = None
    """Where the agent's fields come from; by default the agent's preset for the environment."""

    steps: Annotated[int | None, Range(1)] = None
    """Time steps over all environments; by default as many as the preset needs."""

    seed: Annotated[int, Range(0, MAX_SEED)] = 0
    """Seed of everything random. In one process the same seed gives the same run, bit for bit."""

    num_envs: Annotated[int, Range(0)] = 0
    """Environments, those of all actors together; 0 becomes 8 for one actor, 4 for each of several,
    and 1 for each worker."""

    num_actors: Annotated[int, Range(0)] = 0
    """Actors that share the environments evenly: processes of a program, stepped in turn in one
    process. 0 becomes 1, 2 in a program, and as many as there are workers."""

    actor_update_period: Annotated[int | None, Range(1)] = None
    """Time steps of an actor between fetches of parameters; by default 50 in a program, and in one
    process none: actors read the newest parameters."""

    on_device: bool = False
    """Acts, stores, draws and learns in one compiled function, on the accelerator if there is one:
    for environments written in JAX (catch, memory, deep_sea, CartPole-v1, pgx:ID, module:NAME)."""

    learner_devices: Annotated[int, Range(1)] = 1
    """Devices (GPUs) of this machine over which the learner splits each batch."""

    snapshot_every: Annotated[int | None, Range(1)] = None
    """Steps between snapshots; by default a fifth of the run. The end always has one."""

    snapshot_seconds: Annotated[float, Range(0.0)] = 600.0
    """Seconds after which there is a snapshot in any case; writing them takes a twentieth of the
    time at most."""

    log_every: Annotated[int | None, Range(1)] = None
    """Steps between rows of metrics.csv; by default a hundredth of the run, at most 10,000."""

    keep_snapshots: Annotated[int, Range(1)] = 2
    """Newest snapshots to keep, beside the one with the best evaluation."""

    logger: str | None = None
    """`package.module:NAME` of a function that gets the steps and each row of metrics, for a
    tracker of experiments; see `MetricsLogger`."""

    evaluate_every: Annotated[int, Range(0)] = 0
    """Steps between evaluations of the greedy policy of a run in one process, in environments of
    their own; 0 makes none. The last step is evaluated too. The best evaluation so far leaves a
    snapshot."""

    evaluation_episodes: Annotated[int, Range(1)] = 20
    """Episodes of one evaluation of the greedy policy."""

    workers: WorkerOptions = NO_WORKERS
    """Workers around a parameter server, in place of actors and a learner."""

    agent_config: Any = None
    """The agent's `Config`; the preset's if None."""

    search_path: str = ""
    """The directory from which modules of `agent` and `environment` are imported."""

    def __post_init__(self) -> None:
        check_fields(self)
        workers = self.workers.num_workers
        actors = self.num_actors or workers or 1
        object.__setattr__(self, "num_actors", actors)
        each = 1 if workers else _ENVS if actors == 1 else _ENVS_OF_SEVERAL
        object.__setattr__(self, "num_envs", self.num_envs or each * actors)
        if self.num_envs % self.num_actors:
            raise ValueError(
                f"RunConfig.num_envs must be a multiple of num_actors {self.num_actors}, got "
                f"{self.num_envs}."
            )
        self.workers.check_run(self)
        check_device_run(self)

    @property
    def entry(self) -> AgentEntry:
        """The agent's entry.

        Raises:
          ValueError: there is none of that name.
        """
        return find_agent(self.agent, search_path=self._search_path)

    def find_logger(self) -> Any:
        """What `logger` names: a function, an object or a class of them; None for None.

        Raises:
          ValueError: it cannot be imported, or is no function.
        """
        if self.logger is None:
            return None
        module, _, name = self.logger.partition(":")
        found = getattr(import_from(module, self._search_path), name, None)
        if not callable(found):
            raise ValueError(
                "RunConfig.logger must name a function of steps and metrics as "
                f"package.module:NAME, got {self.logger}."
            )
        return found

    @property
    def environments_per_actor(self) -> int:
        """Environments of each actor."""
        return self.num_envs // self.num_actors

    @property
    def environments_per_replay(self) -> int:
        """Environments whose rows one replay has: all, or those of one worker."""
        return self.environments_per_actor if self.workers.num_workers else self.num_envs

    def environments_of(self, actor: int) -> range:
        """Numbers of an actor's environments among those of all."""
        each = self.environments_per_actor
        return range(actor * each, (actor + 1) * each)

    @property
    def schedule(self) -> tuple[int, int, int]:
        """The last step, and the steps between rows of metrics.csv and between snapshots.

        Raises:
          ValueError: the run is not resolved.
        """
        if self.steps is None or self.log_every is None or self.snapshot_every is None:
            raise ValueError("The run is not resolved: see RunConfig.resolve.")
        return self.steps, self.log_every, self.snapshot_every

    @property
    def replay(self) -> ReplayConfig:
        """The replay's part of `agent_config`, of a resolved run."""
        return self.entry.replay(self.agent_config)

    def make_environment(
        self, *, seed: int, num_envs: int, render: bool = False, evaluation: bool = False
    ) -> VectorEnvironment:
        """Environments of the run's id; arguments and errors as of `environments.make`.

        Those of a run on a device are written in JAX. Its evaluations take the host's own.
        """
        make_importable(self._search_path)
        if self.on_device and not (evaluation or render):
            pure = make_pure(self.environment, search_path=self._search_path)
            return PureVector(pure, num_envs=num_envs, seed=seed)
        return environments.make(
            self.environment, seed=seed, num_envs=num_envs, render=render, evaluation=evaluation
        )

    @property
    def _search_path(self) -> Path | None:
        return Path(self.search_path) if self.search_path else None

    def anchored(self) -> "RunConfig":
        """The same run with an absolute `search_path`, since environments may call `os.chdir`."""
        return dataclasses.replace(self, search_path=str(Path(self.search_path).absolute()))

    def resolve(self, spec: EnvironmentSpec) -> "RunConfig":
        """The same run with every None replaced by its default for the environment.

        Raises:
          ValueError: the entry has no such preset.
        """
        entry = self.entry
        preset = self.preset
        if preset is None:
            preset = default_preset(entry, self.environment, spec)
        steps = self.steps or default_steps(entry, self.environment, preset)
        given = self.agent_config
        config = entry.checked(preset_config(entry, preset) if given is None else given)
        return dataclasses.replace(
            self.anchored(),
            preset=preset,
            steps=steps,
            snapshot_every=self.snapshot_every or max(1, steps // _SNAPSHOTS),
            log_every=self.log_every or min(_MAX_LOG_STEPS, max(1, steps // _LOGS)),
            agent_config=config,
        )


def new_directory(config: RunConfig) -> Path:
    """A directory under runs/ that is no other's: agent, environment, seed, time, random digits."""
    name = f"{config.agent}-{config.environment}-{config.seed}"
    name = "".join(c if c.isalnum() or c in "-_.,=" else "-" for c in name)
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"


def write_config(directory: Path, config: RunConfig) -> None:
    """Writes config.json, whole or not at all."""
    text = json.dumps(values_of(config), indent=2)
    with replacing(directory / "config.json") as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def read_config(directory: Path) -> RunConfig:
    """Reads config.json.

    Raises:
      ValueError: the directory holds no run, its agent cannot be found, or its config does not fit
        this version: fields that are missing or unknown are named.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise ValueError(f"{directory} is not a run directory: it has no config.json.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return RunConfig(**run_fields(values, RunConfig, _config_class)).anchored()
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged or of another version of retrax: {str(error).rstrip('.')}."
        ) from error


def check_new_directory(directory: Path, config: RunConfig) -> None:
    """Refuses a directory whose files would be overwritten.

    Raises:
      ValueError: it is a file, or holds a run or something else.
    """
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"The run directory {directory} is a file.")
    if not directory.exists() or all(path.name == LOCK for path in directory.iterdir()):
        return
    if not (directory / "config.json").exists():
        raise ValueError(f"The run directory {directory} is not empty, and holds no run.")
    changed = differences(read_config(directory), config)
    if changed:
        raise ValueError(
            f"{directory} holds a run with another config ({'; '.join(changed)}): choose another "
            "run directory."
        )
    command = "launch" if (directory / PROGRAM).exists() else "train"
    raise ValueError(f"{directory} holds this run already: retrax {command} --resume {directory}")


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Where two configs differ, as "field: old -> new", nested fields with their path."""
    found = []
    for field in dataclasses.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if dataclasses.is_dataclass(before) and type(before) is type(after):
            found += differences(before, after, f"{prefix}{field.name}.")
        elif before != after:
            found.append(f"{prefix}{field.name}: {before} -> {after}")
    return found


def _config_class(agent: str, search_path: str) -> type:
    return find_agent(agent, search_path=Path(search_path or ".")).Config
