"""`retrax train`."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from ...datatypes import EnvironmentSpec, VectorEnvironment
from ...environments.failures import close_quietly
from ...run_directory.config_file import PROGRAM
from ...run_directory.seed_runs import new_seed_runs, seed_runs, write_seed_runs
from ...runtime.assembly import MANY, spec_of
from ...runtime.checks import checked_agent
from ...runtime.run_config import RunConfig
from ..failing import RunFailedError
from ..parsing import part, tell
from ..training import Summary, train
from .run_arguments import AgentConfig, RunArguments, parse_run
from .seeds import SeedOptions, train_seeds, train_seeds_together


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainArguments(SeedOptions, RunArguments[AgentConfig]):
    """Train an agent in one process, or continue a run. Ctrl-C leaves a snapshot too."""

    @property
    def hidden(self) -> set[str]:
        """Fields that are no options."""
        return super().hidden | (set() if self.resume is None else {"seeds"})


def train_command(arguments: Sequence[str]) -> int:
    """Trains, and prints where the run is and what to do next.

    Returns:
      The exit status: 1 if the run failed, else 0.
    """
    try:
        return _train(arguments)
    except RunFailedError as failure:
        tell(f"retrax: {failure}")
        return 1


def _train(arguments: Sequence[str]) -> int:
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
        if spec is None and (directory / PROGRAM).is_file():
            raise ValueError(
                f"{directory} was started by retrax launch: continue it with retrax launch "
                f"--resume {directory}"
            )
        options = part(given, SeedOptions)
        if spec is None and seed_runs(directory):
            return train_seeds(run, directory, options, plain=given.plain)
        if options.seeds == 1:
            given_one: Any = {"environment": made[0] if made else None, "resume": spec is None}
            return _finish(train(run, directory, plain=given.plain, **given_one))
    assert spec is not None, "seeds is hidden where a run is resumed"
    checked_agent(run, spec)
    runs = new_seed_runs(directory, run, options.seeds)
    if run.on_device:
        return train_seeds_together(runs, directory, resume=False, plain=given.plain)
    write_seed_runs(runs)
    return train_seeds(run, directory, options, plain=given.plain)


def _finish(summary: Summary) -> int:
    if summary.interrupted:
        tell(f"Stopped by you. To continue: retrax train --resume {summary.directory}")
    print(
        f"Run in {summary.directory}. Next: retrax evaluate {summary.directory}"
        f"  |  retrax plot {summary.directory}"
    )
    return 0
