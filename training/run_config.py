"""The configuration of a run, the seeds of everything random in it, and its config.json.

A field that is missing there could mean anything: the class's default is not the preset's, and
neither need be what the run was trained with. So missing and unknown fields are refused.
"""

import contextlib
import dataclasses
import enum
import functools
import json
import operator
import time
import uuid
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np

from .. import environments
from ..agents.entry import AgentEntry, find_agent
from ..basics.files import write_json
from ..basics.imports import import_from, make_importable
from ..basics.sentences import typed
from ..basics.validation import Range, check_fields, field_types
from ..datatypes import EnvironmentSpec, ReplayConfig, VectorEnvironment
from ..environments.factory import make_pure_vector

VERSION = 1  # of config.json
LOCK = "lock"  # in a run directory, as long as a process writes into it
_NO_RUN = {LOCK, "config.json.partial"}  # what a kill may leave before there is a run
PROGRAM = "program.json"  # in the run directory of a program
MAX_SEED = 2**32 - 1  # JAX ignores all bits beyond
# Beginnings of the names of fields that decide what is learned.
_OF_LEARNING = ("agent", "environment", "num_", "actor_", "on_device", "seed", "workers")
_SNAPSHOTS, _LOGS, _DEVICE_LOGS = 5, 100, 20  # in a run, by default; a row interrupts a device


@enum.unique
class Purpose(enum.IntEnum):
    """What a derived seed is for. No two purposes share a stream."""

    EVALUATION = 1  # `retrax evaluate`
    RESUME = 2  # environments of a resumed run
    ACTOR = 3  # environments of a program's actor
    EVALUATOR = 4  # environments of a program's evaluator
    ORDER = 5  # in which order the actors of one thread step
    RECORDING = 6  # `retrax record-states`
    PERIODIC_EVALUATION = 7  # while a run trains
    WORKER = 8  # replay of one of several workers


def derive_seed(seed: int, purpose: Purpose, *more: int) -> int:
    """A seed unrelated to the run's; `more` tells seeds of one purpose apart, but not by zeros."""
    return int(np.random.SeedSequence([seed, int(purpose), *more]).generate_state(1)[0])


def next_multiple(value: int, of: int) -> int:
    """The least multiple of a number that is greater than a value."""
    return (value // of + 1) * of


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Workers around a parameter server, as Reactor's (3.5) and ACER's actor-learners (4)."""

    num_workers: Annotated[int, Range(0)] = 0
    """Workers around a parameter server, as in Reactor (3.5) and ACER (4). Each has its own
    environments, replay and update schedule, and computes gradients that the server applies. 0:
    actors, a replay and one learner."""

    max_staleness: Annotated[int | None, Range(0)] = None
    """Largest age of a gradient's parameters, in versions of the server; older gradients are
    dropped. By default none are."""

    gradients_per_fetch: Annotated[int, Range(1)] = 1
    """Gradients that a worker sends between two fetches of parameters."""

    decoupled: bool = False
    """Each worker acts and learns in two threads, as in Reactor (3.5), instead of in turn. Acting
    waits while a call of updates is due that the learner has not drawn yet."""

    def __post_init__(self) -> None:
        check_fields(self)
        for field in dataclasses.fields(self):
            if not self.num_workers and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"WorkerOptions.{field.name} needs workers: give num_workers, got 0."
                )


NO_WORKERS = WorkerOptions()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run. `resolve` replaces fields that are None by the agent's defaults."""

    agent: str
    """The name of a registered agent, or `package.module:NAME` of an `AgentEntry`."""

    environment: str
    """catch, a Gymnasium id (CartPole-v1), dm_control:cartpole/swingup, a game (ALE/Pong-v5), or
    your own as module:NAME; switches may follow (deep_sea,size=20)."""

    preset: str | None = None
    """The preset of the agent's fields; by default the agent's preset for the environment."""

    steps: Annotated[int | None, Range(1, 10**12)] = None
    """Time steps of all environments together; by default as many as the preset needs."""

    seed: Annotated[int, Range(0, MAX_SEED)] = 0
    """Seed of all random numbers. In one process the same seed gives the same run, bit for bit."""

    num_envs: Annotated[int, Range(0)] = 0
    """Environments of all actors together. 0 means 8 for one actor, 4 for each of several, and 1
    for each worker."""

    num_actors: Annotated[int, Range(0)] = 0
    """Actors, which share the environments evenly: processes of a program, or stepped in turn in
    one process. 0 means 1 (2 for `retrax launch`); with workers, their number."""

    actor_update_period: Annotated[int | None, Range(1)] = None
    """Time steps of an actor between fetches of parameters. The default is 50 in a program. In one
    process it is none: actors read the newest parameters."""

    on_device: bool = False
    """Act, store, draw and learn in one compiled function, on the accelerator if there is one. For
    environments written in JAX (catch, memory, deep_sea, noisy_deep_sea, CartPole-v1, Pendulum-v1,
    SUITE:NAME, module:NAME)."""

    learner_devices: Annotated[int, Range(1)] = 1
    """Devices (GPUs) of this machine over which the learner splits each batch."""

    snapshot_every: Annotated[int | None, Range(1)] = None
    """Steps between snapshots; by default a fifth of the run. The last step always has one."""

    snapshot_seconds: Annotated[float, Range(0.0)] = 600.0
    """Maximum seconds between snapshots, unless writing them would take more than a twentieth of
    the time."""

    log_every: Annotated[int | None, Range(1)] = None
    """Steps between rows of metrics.csv; by default a hundredth of the run, at most 10,000; on
    a device a twentieth."""

    keep_snapshots: Annotated[int, Range(1)] = 2
    """Number of newest snapshots to keep."""

    logger: str | None = None
    """`package.module:NAME` of a function that receives the steps and each row of metrics, for an
    experiment tracker; see `MetricsLogger`."""

    evaluate_every: Annotated[int | None, Range(0)] = None
    """Steps between evaluations of the greedy policy, in separate environments, in a run in one
    process; the last step has one too. 0: none. By default ten in a run, fewer if episodes are
    long; on a device, one at its end. The best parameters are kept in best.npz."""

    evaluation_episodes: Annotated[int, Range(1)] = 20
    """Episodes of one evaluation of the greedy policy."""

    workers: WorkerOptions = NO_WORKERS
    """Workers around a parameter server, in place of actors and a learner."""

    agent_config: Any = None
    """The agent's `Config`; by default the preset's."""

    search_path: str = ""
    """The directory from which modules of `agent` and `environment` are imported."""

    def __post_init__(self) -> None:
        check_fields(self)
        workers = self.workers.num_workers
        actors = self.num_actors or workers or 1
        object.__setattr__(self, "num_actors", actors)
        each = 1 if workers else 8 if actors == 1 else 4  # two have as many as one alone
        object.__setattr__(self, "num_envs", self.num_envs or each * actors)
        if self.num_envs % self.num_actors:
            raise ValueError(
                f"RunConfig.num_envs must be a multiple of num_actors {self.num_actors}, got "
                f"{self.num_envs}."
            )
        _check_together(self)

    @functools.cached_property
    def entry(self) -> AgentEntry:
        """The agent's entry, looked up once; ValueError if there is none of that name."""
        return find_agent(self.agent, search_path=Path(self.search_path))

    def find_logger(self) -> Any:
        """What `logger` names: a function, an object or a class of them, or a ValueError."""
        if self.logger is None:
            return None
        module, _, name = self.logger.partition(":")
        found = getattr(import_from(module, Path(self.search_path)), name, None)
        if not callable(found):
            raise ValueError(
                "RunConfig.logger must name a function of steps and metrics as "
                f"package.module:NAME, got {self.logger}."
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        """The fields: an entry may have functions that cannot be pickled."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def environments_per_actor(self) -> int:
        """Environments of each actor."""
        return self.num_envs // self.num_actors

    @property
    def environments_per_replay(self) -> int:
        """Environments whose rows one replay has: all, or one worker's."""
        return self.environments_per_actor if self.workers.num_workers else self.num_envs

    def environments_of(self, actor: int) -> range:
        """Numbers of an actor's environments, counted over all actors."""
        each = self.environments_per_actor
        return range(actor * each, (actor + 1) * each)

    def prng_keys(self) -> tuple[jax.Array, jax.Array]:
        """PRNG keys of a run: the learner's, and one for each environment `[num_envs]`."""
        learner, actors = jax.random.split(jax.random.key(self.seed))
        return learner, jax.random.split(actors, self.num_envs)

    @property
    def schedule(self) -> tuple[int, int, int]:
        """The last step, and the steps between rows of metrics.csv and between snapshots."""
        if self.steps is None or self.log_every is None or self.snapshot_every is None:
            raise ValueError("The run is not resolved: see RunConfig.resolve.")
        return self.steps, self.log_every, self.snapshot_every

    @property
    def replay(self) -> ReplayConfig:
        """The replay's config in `agent_config`, of a resolved run."""
        return self.entry.replay(self.agent_config)

    def make_environment(
        self, *, seed: int, num_envs: int, render: bool = False, evaluation: bool = False
    ) -> VectorEnvironment:
        """Environments of the run's id; arguments and errors: see `environments.make`.

        Those of a run on a device are written in JAX. Its evaluations take the host's own.
        """
        path = Path(self.search_path)
        make_importable(path)
        if self.on_device and not (evaluation or render):
            return make_pure_vector(
                self.environment, seed=seed, num_envs=num_envs, search_path=path
            )
        return environments.make(
            self.environment, seed=seed, num_envs=num_envs, render=render, evaluation=evaluation
        )

    def anchored(self) -> "RunConfig":
        """The same run with an absolute `search_path`, since environments may call `os.chdir`."""
        return dataclasses.replace(self, search_path=str(Path(self.search_path).absolute()))

    def resolve(self, spec: EnvironmentSpec) -> "RunConfig":
        """The same run with every None replaced by its default for the environment."""
        entry = self.entry
        preset = entry.preset_of(self.environment, spec) if self.preset is None else self.preset
        steps = self.steps or entry.steps_of(self.environment, preset)
        given = self.agent_config
        config = entry.checked(entry.config_of(preset) if given is None else given)
        every = steps // _DEVICE_LOGS if self.on_device else min(10_000, steps // _LOGS)
        return dataclasses.replace(
            self.anchored(),
            preset=preset,
            steps=steps,
            snapshot_every=self.snapshot_every or max(1, steps // _SNAPSHOTS),
            log_every=self.log_every or max(1, every),
            agent_config=config,
        )


def _check_together(run: RunConfig) -> None:
    """Refuses values of fields that workers, or a run on a device, do not have."""
    count = run.workers.num_workers
    fetching = "None with workers, which act with the parameters that they fetch for each gradient"
    on_one = "1 with workers, whose gradients are computed on one device each"
    for applies, name, allowed, text in (
        (count, "num_actors", count, f"num_workers {count}, since every worker acts"),
        (count, "actor_update_period", None, fetching),
        (count, "learner_devices", 1, on_one),
        (run.on_device, "num_actors", 1, "1 if on_device is True"),
        (run.on_device, "learner_devices", 1, "1 if on_device is True"),
        (run.on_device, "actor_update_period", None, "None if on_device is True"),
        (run.on_device, "workers.num_workers", 0, "0 if on_device is True"),
    ):
        if applies and (found := operator.attrgetter(name)(run)) != allowed:
            raise ValueError(f"RunConfig.{name} must be {text}, got {found}.")


def values_of(run: Any) -> dict[str, Any]:
    """What config.json holds of a run: JSON values."""
    return {"version": VERSION, **dataclasses.asdict(run)}


def _run_of(values: Any) -> RunConfig:
    """The inverse of `values_of`, from parsed JSON; ValueError names all wrong fields."""
    values = {**_object(values, "config.json")}
    version, _ = values.pop("version", None), values.pop("id", None)
    if not (type(version) is int and version == VERSION):
        raise ValueError(f"its version must be {VERSION}, got {version!r}")
    problems: list[str] = []
    run, config = _build(RunConfig, values, "", problems), None
    if {"agent", "search_path", "agent_config"} <= values.keys():
        entry = find_agent(values["agent"], search_path=Path(values["search_path"]))
        config = _build(entry.Config, values["agent_config"], "agent_config.", problems)
    if problems:
        raise ValueError("; ".join(problems))
    return dataclasses.replace(run, agent_config=config)


def _build(kind: Any, values: Any, prefix: str, problems: list[str]) -> Any:
    """A config from JSON, nested ones included; None if fields are added to `problems`."""
    values, types = _object(values, prefix.rstrip(".")), field_types(kind)
    problems += [f"{prefix}{name} is missing" for name in types if name not in values]
    problems += [f"{prefix}{name} is unknown" for name in values if name not in types]
    built = {}
    for name, value in values.items():
        hint = types[name].type if name in types else None
        if dataclasses.is_dataclass(hint):
            built[name] = _build(hint, value, f"{prefix}{name}.", problems)
        else:
            built[name] = _tuples(value)
    return None if problems else kind(**built)


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object with fields")
    return value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def new_directory(config: RunConfig) -> Path:
    """A directory under runs/ that is no other's: agent, environment, seed, time, random digits."""
    name = f"{config.agent}-{config.environment}-{config.seed}"
    name = "".join(c if c.isalnum() or c in "-_.,=" else "-" for c in name)
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"


def write_config(directory: Path, config: RunConfig) -> None:
    """Writes config.json, whole or not at all, with the run's id, which it keeps."""
    own = run_id(directory) if (directory / "config.json").is_file() else None
    write_json(directory / "config.json", {**values_of(config), "id": own or uuid.uuid4().hex})


def run_id(directory: Path) -> str | None:
    """The id of the run whose directory this is, or has this; None of runs that have none."""
    folders = (directory, *directory.parents[:3])  # a worker's snapshots are within the run's
    with contextlib.suppress(StopIteration, ValueError, AttributeError):
        path = next(x / "config.json" for x in folders if (x / "config.json").is_file())
        return json.loads(path.read_text(encoding="utf-8")).get("id")
    return None


def read_config(directory: Path) -> RunConfig:
    """Reads config.json, or raises a ValueError that names all fields that are wrong."""
    path = directory / "config.json"
    if (directory / "agent.json").is_file():
        raise ValueError(f"{directory} holds an exported agent, not a run.")
    if not path.is_file():
        runs = ", ".join(run.name for run in seed_runs(directory))
        has = f"has the runs {runs}" if runs else "has no config.json"
        raise ValueError(f"{directory} is not a run directory: it {has}.")
    try:
        return _run_of(json.loads(path.read_text(encoding="utf-8"))).anchored()
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged or of another version of retrax: {str(error).rstrip('.')}."
        ) from error


def check_directory(directory: Path, config: RunConfig, *, resume: bool = False) -> None:
    """A ValueError refuses a directory that holds something or, to `resume`, another run."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"The run directory {directory} is a file.")
    if not directory.exists() or _NO_RUN.issuperset(x.name for x in directory.iterdir()):
        return
    if seed_runs(directory):
        raise ValueError(f"{directory} holds runs already: {typed('train', '--resume', directory)}")
    if not (directory / "config.json").exists():
        raise ValueError(f"The run directory {directory} is not empty, and holds no run.")
    every = differences(read_config(directory), config)
    changed = [each for each in every if not resume or each.startswith(_OF_LEARNING)]
    if changed:
        raise ValueError(
            f"{directory} holds a run with another config ({'; '.join(changed)}): choose another "
            "run directory."
        )
    if not resume:
        how = typed("launch" if (directory / PROGRAM).exists() else "train", "--resume", directory)
        raise ValueError(f"{directory} holds this run already: {how}")


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


def seed_runs(directory: Path) -> list[Path]:
    """The runs `seed_0`, `seed_1`, ... of a directory by seed; none if it is another one."""
    found = [path.parent for path in directory.glob("seed_*/config.json")]
    named = {path.name.removeprefix("seed_"): path for path in found}
    return [named[seed] for seed in sorted(filter(str.isdecimal, named), key=int)]


def new_seed_runs(directory: Path, config: RunConfig, count: int) -> dict[Path, RunConfig]:
    """The runs of `count` seeds, from the config's on, by directories that are yet to be made."""
    configs = [dataclasses.replace(config, seed=config.seed + index) for index in range(count)]
    check_directory(directory, config)
    return {directory / f"seed_{each.seed}": each for each in configs}
