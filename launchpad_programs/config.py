"""The configuration of a program: a run, and what only programs have."""

import dataclasses
import functools
import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax

from .._imports import import_from, make_importable
from .._validation import Range, check_fields
from ..agents.base import Agent
from ..datatypes import EnvironmentSpec
from ..runtime.run_directory import PROGRAM, RunConfig

SERVING = ("replay", "counter", "learner")  # nodes that others call
_NOT_WRITTEN = ("run", "directory", "resumed_at")  # config.json and the snapshots have them


@dataclasses.dataclass(frozen=True, kw_only=True)
class AcmeOptions:
    """A user's loggers, observers and environment loop of Acme, for the actors of a program.

    Every actor then runs its own `acme.EnvironmentLoop` with one environment.
    """

    logger_factory: Callable[[str, str | None, int], Any] | None = None
    """Acme's `LoggerFactory`: `(label, steps_key, instance) -> acme.utils.loggers.Logger`, called
    in the nodes with the labels "actor" (instance 0 .. num_actors - 1) and "learner" (0)."""

    observers: Sequence[Any] = ()
    """Of the type `acme.utils.observers.EnvLoopObserver`; every actor has copies of its own."""

    make_environment_loop: Callable[..., Any] | None = None
    """`(environment, actor, logger=, observers=) -> loop`, whose `run()` steps for ever;
    `acme.EnvironmentLoop` if None."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramConfig:
    """A run as a program: the run itself, and what only a program has."""

    run: RunConfig
    """Resolved; `num_envs` counts the environments of all actors."""

    directory: Path
    """The run directory."""

    environments_per_actor: Annotated[int, Range(1)] = 1
    """Environments that an actor steps together."""

    actor_update_period: Annotated[int, Range(1)] = 50
    """Time steps of an actor between fetches of parameters."""

    evaluation_episodes: Annotated[int, Range(1)] = 20
    """Episodes of one evaluation."""

    final_evaluation_seconds: Annotated[float, Range(0.0)] = 60.0
    """How long the evaluation at the end of the run may take."""

    port: int | None = None
    """The first of the ports of `SERVING`; free ones if None."""

    resumed_at: int | None = None
    """Steps of the snapshot from which the run is resumed."""

    acme: AcmeOptions | str | None = None
    """Acme's parts of the actors, or `package.module:NAME` of them, which program.json keeps."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.run.num_envs % self.environments_per_actor:
            raise ValueError(
                "RunConfig.num_envs must be a multiple of environments_per_actor "
                f"{self.environments_per_actor}, got {self.run.num_envs}."
            )
        if self.acme is not None and self.environments_per_actor > 1:
            raise ValueError(
                "ProgramConfig.environments_per_actor must be 1 with acme, whose loop steps one "
                f"environment, got {self.environments_per_actor}."
            )

    @property
    def schedule(self) -> tuple[int, int, int]:
        """The last step, and the steps between rows of metrics.csv and between snapshots."""
        run = self.run
        if run.steps is None or run.log_every is None or run.snapshot_every is None:
            raise ValueError("The run is not resolved: see RunConfig.resolve.")
        return run.steps, run.log_every, run.snapshot_every

    @property
    def num_actors(self) -> int:
        """Actors, each with `environments_per_actor` environments."""
        return self.run.num_envs // self.environments_per_actor

    def environments_of(self, actor: int) -> range:
        """Numbers of an actor's environments among those of all."""
        return range(actor * self.environments_per_actor, (actor + 1) * self.environments_per_actor)

    @property
    def keeps_sequences(self) -> bool:
        """Whether Reverb keeps the sequences; if not, it passes rows to the learner's replay."""
        return self.run.replay.selector != "contextual"

    @functools.cached_property
    def spec(self) -> EnvironmentSpec:
        """The spec of one environment; makes one, once in a process."""
        environment = self.run.make_environment(seed=self.run.seed, num_envs=1)
        try:
            return environment.spec
        finally:
            environment.close()

    def make_agent(self, spec: EnvironmentSpec) -> Agent:
        """The agent of the run."""
        return self.run.entry.make_agent(spec, self.run.agent_config)

    def keys(self) -> tuple[jax.Array, jax.Array]:
        """PRNG keys: the learner's, and one for each environment, as in one process."""
        learner, actors = jax.random.split(jax.random.key(self.run.seed))
        return learner, jax.random.split(actors, self.run.num_envs)

    def acme_options(self) -> AcmeOptions | None:
        """The options of `acme`; ValueError if it names something else."""
        if not isinstance(self.acme, str):
            return self.acme
        module, _, name = self.acme.partition(":")
        options = getattr(import_from(module, Path(self.run.search_path)), name, None)
        if not isinstance(options, AcmeOptions):
            raise ValueError(f"acme must name AcmeOptions as package.module:NAME, got {self.acme}.")
        return options

    def __reduce__(self) -> Any:
        """Nodes unpickle the agent's config, whose module may be in the search path only."""
        import cloudpickle

        return _unpickle, (self.run.search_path, cloudpickle.dumps(_fields(self)))


def write_options(config: ProgramConfig) -> None:
    """Writes program.json, without `AcmeOptions` that were given as an object."""
    kept = {name: value for name, value in _fields(config).items() if name not in _NOT_WRITTEN}
    kept["acme"] = config.acme if isinstance(config.acme, str) else None
    (config.directory / PROGRAM).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def read_options(directory: Path) -> dict[str, Any]:
    """Arguments of `ProgramConfig`, from program.json.

    Raises:
      ValueError: the run is not a program.
    """
    path = directory / PROGRAM
    if not path.is_file():
        raise ValueError(
            f"{directory} was trained in one process, whose metrics have other columns: resume it "
            f"with retrax train --resume {directory}"
        )
    options: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return options


def _fields(config: ProgramConfig) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def _unpickle(search_path: str, fields: bytes) -> ProgramConfig:
    make_importable(Path(search_path))
    return ProgramConfig(**pickle.loads(fields))
