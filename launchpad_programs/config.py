"""What a program is, as its run directory keeps it."""

import dataclasses
import json
from pathlib import Path

from .._validation import check_integer, check_range
from ..experiments.config import PROGRAM, RunConfig, derive_seed

SERVING = ("replay", "counter", "learner")  # nodes that others call
_SEED_OF = {"actor": 2, "evaluator": 3}  # what `derive_seed` is asked for; 1 is `retrax evaluate`


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramConfig:
    """A run as a program: that of one process, and what only a program has."""

    run: RunConfig
    """As in one process; `num_envs` counts the environments of all actors."""

    directory: Path
    """The run directory."""

    environments_per_actor: int = 1
    """Environments that an actor steps together, deciding for all of them at once."""

    actor_update_period: int = 50
    """Time steps of an actor between fetches of parameters."""

    evaluation_episodes: int = 20
    """Episodes of one evaluation."""

    final_evaluation_seconds: float = 60.0
    """How long the evaluation at the run's end may take."""

    port: int | None = None
    """The first of the ports of `SERVING`; if None, free ones are picked."""

    resumed_at: int | None = None
    """Steps of the snapshot that the run goes on from, if it does."""

    def __post_init__(self) -> None:
        check_integer(self, "environments_per_actor", 1)
        check_integer(self, "actor_update_period", 1)
        check_integer(self, "evaluation_episodes", 1)
        check_range(self, "final_evaluation_seconds", 0.0)

    @property
    def num_actors(self) -> int:
        """Actors, each with `environments_per_actor` environments."""
        return self.run.num_envs // self.environments_per_actor

    def environments_of(self, actor: int) -> range:
        """Numbers of an actor's environments among those of all."""
        return range(actor * self.environments_per_actor, (actor + 1) * self.environments_per_actor)

    def seed(self, label: str, *more: int) -> int:
        """The seed of a node's environments, another one for each part of a resumed run."""
        return derive_seed(self.run.seed, _SEED_OF[label], *more, self.resumed_at or 0)


def write_options(config: ProgramConfig) -> None:
    """Writes program.json."""
    options = dataclasses.asdict(config)
    kept = {k: v for k, v in options.items() if k not in ("run", "directory", "resumed_at")}
    (config.directory / PROGRAM).write_text(json.dumps(kept, indent=2) + "\n")
