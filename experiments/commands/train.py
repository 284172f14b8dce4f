"""`retrax train`."""

import contextlib
import dataclasses
from collections.abc import Sequence

from ...datatypes import EnvironmentSpec, VectorEnvironment
from ...environments.failures import close_quietly
from ...runtime.assembly import MANY, spec_of
from ...runtime.run_directory import PROGRAM, RunConfig
from ..failing import RunFailedError
from ..parsing import tell
from ..training import Summary, train
from .run_arguments import AgentConfig, RunArguments, parse_run


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainArguments(RunArguments[AgentConfig]):
    """Train an agent in one process, or continue a run. Ctrl-C leaves a snapshot too."""


def train_command(arguments: Sequence[str]) -> int:
    """Trains, and prints where the run is and what to do next.

    Returns:
      The exit status: 1 if the run failed, else 0.
    """
    try:
        return _finish(_train(arguments))
    except RunFailedError as failure:
        tell(f"retrax: {failure}")
        return 1


def _train(arguments: Sequence[str]) -> Summary:
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
        environment = made[0] if made else None
        return train(
            run, directory, resume=spec is None, plain=given.plain, environment=environment
        )


def _finish(summary: Summary) -> int:
    if summary.interrupted:
        tell(f"Stopped by you. To continue: retrax train --resume {summary.directory}")
    print(
        f"Run in {summary.directory}. Next: retrax evaluate {summary.directory}"
        f"  |  retrax plot {summary.directory}"
    )
    return 0
