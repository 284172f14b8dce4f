"""A run in one process, put together: environments, replay, learner, actors."""

from typing import Any

import numpy as np

from ..agents.base import Agent
from ..datatypes import EnvironmentSpec, VectorEnvironment
from ..environments.custom import as_vector
from ..environments.failures import closing_quietly, one_sentence
from ..replay.local import LocalReplay
from .actor import Actor
from .checks import checked_agent
from .learner import Learner, NewestParameters
from .loop import Loop
from .parameters import ParameterClient, ParameterServer, packing_of
from .run_config import RunConfig
from .seeds import Purpose, derive_seed
from .workers.assembly import make_workers

MANY = 256  # environments; so many are made only after the run has been checked with one


def spec_of(config: RunConfig) -> EnvironmentSpec:
    """The spec of the run's environment; makes one, and resets it.

    Raises:
      ValueError: it cannot be made or reset.
    """
    with closing_quietly(config.make_environment(seed=config.seed, num_envs=1)) as environment:
        with one_sentence("the environment cannot be reset"):
            environment.reset()
        return environment.spec


def given_environments(
    environment: Any, config: RunConfig, resume: bool
) -> VectorEnvironment | None:
    """The environments that a caller made, see `as_vector`; None if the run makes its own.

    Raises:
      ValueError: they are no environments, or do not fit the run.
    """
    if environment is None:
        return None
    if resume:
        raise ValueError("environment must be None if resume is True: a run makes its own.")
    if config.num_actors != 1:
        raise ValueError(
            f"environment must be None if num_actors is not 1, got num_actors {config.num_actors}."
        )
    return as_vector(environment, "environment", num_envs=config.num_envs, seed=config.seed)


def make_environments(config: RunConfig, resumed_at: int | None) -> list[VectorEnvironment]:
    """The environments of each actor.

    Args:
      config: of the run.
      resumed_at: steps of the snapshot, where new episodes begin, which are other ones than those
        of a new run; None for a new run, or where the running episodes continue.

    Raises:
      ValueError: they cannot be made, or there are too many for the memory or the replay.
    """
    if config.num_envs > MANY:
        spec = spec_of(config)
        checked_agent(config.resolve(spec), spec)
    if config.num_actors == 1 and config.actor_update_period is None:
        seed = config.seed
        if resumed_at is not None:
            seed = derive_seed(config.seed, Purpose.RESUME, resumed_at)
        return [config.make_environment(seed=seed, num_envs=config.num_envs)]
    return [
        config.make_environment(
            seed=derive_seed(config.seed, Purpose.ACTOR, index, resumed_at or 0),
            num_envs=config.environments_per_actor,
        )
        for index in range(config.num_actors)
    ]


def make_loop(config: RunConfig, agent: Agent, environments: list[VectorEnvironment]) -> Loop:
    """The loop of a run, at its beginning.

    Args:
      config: resolved.
      agent: made by the config's entry.
      environments: of each actor; the loop closes them.

    Raises:
      ValueError: the replay is too small for one sequence, or larger than the memory.
    """
    if config.workers.num_workers:
        return make_workers(config, agent, environments)
    replay = LocalReplay(
        environments[0].spec,
        agent.sequence,
        config.replay,
        num_envs=config.num_envs,
        seed=config.seed,
    )
    period = config.actor_update_period
    server = None if period is None else ParameterServer(packing_of(agent), max_wait=0.0)
    learner = Learner.of_run(config, agent, replay, parameters=server)
    actors = []
    for index, environment in enumerate(environments):
        writer = replay.writer(config.environments_of(index))
        parameters: NewestParameters | ParameterClient = NewestParameters(learner)
        if server is not None and period is not None:
            parameters = ParameterClient(
                server.get, server.packing, update_period=period, threaded=False
            )
        actors.append(Actor.of_run(config, agent, environment, index, writer, parameters))
    seed = derive_seed(config.seed, Purpose.ORDER)
    order = np.random.default_rng(seed) if len(actors) > 1 else None
    return Loop(actors, learner, [replay], order=order)
