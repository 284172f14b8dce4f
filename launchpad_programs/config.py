"""The configuration of a program: a run, and what only programs have."""

import dataclasses
import functools
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from ..agents.base import Agent
from ..basics.files import write_json
from ..basics.imports import import_from, make_importable
from ..basics.sentences import reason
from ..basics.validation import Range, check_fields
from ..datatypes import EnvironmentSpec, VectorEnvironment
from ..environments.failures import closing_quietly
from ..training.run_config import PROGRAM, Purpose, RunConfig, derive_seed, write_config
from ..training.snapshots import newest_snapshot
from .engines.options import ProgramOptions

# Written by the counter while a program runs, which continues from it when it is restarted.
STATUS = "status.json"
RESTARTS = "restarts.json"  # from node to its restarts, see `restarted`


@dataclasses.dataclass(frozen=True, kw_only=True)
class AcmeOptions:
    """Your own Acme loggers, observers and environment loop, for the actors of a program."""

    logger_factory: Callable[[str, str, int], Any] | None = None
    """Acme's `LoggerFactory`, `(label, steps_key, instance) -> acme.utils.loggers.Logger`, called
    in the nodes: ("actor", "actor_steps", 0 .. num_actors - 1) and ("learner", "updates", 0)."""

    observers: Sequence[Any] = ()
    """Instances of `acme.utils.observers.EnvLoopObserver`; each actor's process has its own."""

    make_environment_loop: Callable[..., Any] | None = None
    """`(environment, actor, logger=, observers=) -> loop`, whose `run()` steps until the actor
    raises; `acme.EnvironmentLoop` if None."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramConfig(ProgramOptions):
    """A run as a program: the run itself, and what only a program has."""

    run: RunConfig
    """Resolved, with an `actor_update_period` or workers."""

    directory: Path
    """The run directory."""

    resumed_at: int | None = None
    """Steps of the snapshot from which the run is resumed."""

    restarts: Annotated[int, Range(0)] = 0
    """How often the node that is made from this config was restarted while the program ran."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.acme is not None and (self.has_workers or self.run.environments_per_actor > 1):
            raise ValueError(
                "acme must be None with workers, and needs num_envs equal to num_actors: its loop "
                f"steps one environment, got acme {self.acme}, num_envs {self.run.num_envs}."
            )

    @property
    def continues(self) -> bool:
        """Whether there may be states of earlier processes to continue from."""
        return self.resumed_at is not None or self.restarts > 0

    @property
    def has_workers(self) -> bool:
        """Whether workers compute gradients for a parameter server."""
        return self.run.workers.num_workers > 0

    @functools.cached_property
    def spec(self) -> EnvironmentSpec:
        """The spec of one environment; makes one, once in a process."""
        with closing_quietly(self.run.make_environment(seed=self.run.seed, num_envs=1)) as probe:
            return probe.spec

    def make_agent(self, spec: EnvironmentSpec) -> Agent:
        """The agent of the run."""
        return self.run.entry.make_agent(spec, self.run.agent_config)

    def derive_seed(self, purpose: Purpose, *more: int) -> int:
        """A seed of a node, another one in each of its processes."""
        return derive_seed(self.run.seed, purpose, *more, self.resumed_at or 0, self.restarts)

    def make_actors_environment(self, index: int) -> VectorEnvironment:
        """The environments of an actor or a worker."""
        seed = self.derive_seed(Purpose.ACTOR, index)
        return self.run.make_environment(seed=seed, num_envs=self.run.environments_per_actor)

    def acme_options(self) -> AcmeOptions | None:
        """What `acme` names; ValueError if that is not `AcmeOptions`."""
        if self.acme is None:
            return None
        module, _, name = self.acme.partition(":")
        options = getattr(import_from(module, Path(self.run.search_path)), name, None)
        if not isinstance(options, AcmeOptions):
            raise ValueError(f"acme must name AcmeOptions as package.module:NAME, got {self.acme}.")
        return options

    def __reduce__(self) -> Any:
        """Unpickled in nodes, where the module of the agent's config must be importable first."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _unpickle, (self.run.search_path, pickle.dumps(values))


def write_program(config: ProgramConfig) -> None:
    """Writes config.json and program.json."""
    write_config(config.directory, config.run)
    names = [field.name for field in dataclasses.fields(ProgramOptions)]
    write_json(config.directory / PROGRAM, {name: getattr(config, name) for name in names})


def restarted(config: ProgramConfig, restarts: Mapping[str, int], name: str) -> ProgramConfig:
    """The config of a node that is started again; writes the restarts of all nodes."""
    write_json(config.directory / RESTARTS, restarts)
    newest = newest_snapshot(config.directory)
    return dataclasses.replace(config, restarts=restarts[name], resumed_at=newest)


def read_json(path: Path) -> dict[str, Any]:
    """Of `PROGRAM`, `STATUS` or `RESTARTS`; empty before it is written."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({reason(error)}).") from error


def _unpickle(search_path: str, values: bytes) -> ProgramConfig:
    make_importable(Path(search_path))
    return ProgramConfig(**pickle.loads(values))
