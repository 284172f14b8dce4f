"""A run in one process, put together: environments, replay, learner, actors."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..agents.base import Agent
from ..basics.sentences import first_line
from ..datatypes import EnvironmentSpec, VectorEnvironment
from ..environments.custom import as_vector
from ..environments.failures import close_quietly, closing_quietly, one_sentence
from ..replay.local import LocalReplay
from .actor import Actor
from .checks import checked_agent
from .learner import Learner
from .loop import Loop
from .parameters import ParameterClient, ParameterServer, packing_of
from .resuming import NEW, Start
from .run_config import RunConfig
from .seeds import Purpose, derive_seed

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


def make_environments(config: RunConfig, resumed_at: int | None = None) -> list[VectorEnvironment]:
    """The environments of each actor, before their first episodes.

    Args:
      config: of the run.
      resumed_at: steps of the snapshot at which other episodes begin than those of a new run.

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


def environments_at(config: RunConfig, start: Start) -> tuple[list[VectorEnvironment], Start]:
    """The environments of each actor, in their running episodes where they can continue.

    Returns:
      The environments; and `start`, without `running` if they refused their states.

    Raises:
      ValueError: see `make_environments`.
    """
    if start.running is None:
        return make_environments(config, start.steps), start
    environments = make_environments(config)
    if not start.environment_states:  # on a device, or a run on data
        return environments, start
    try:
        for environment, state in zip(environments, start.environment_states, strict=True):
            environment.restore(state)  # type: ignore[attr-defined]
    except (Exception, SystemExit) as error:
        for environment in environments:
            close_quietly(environment)
        reason = f"they cannot continue ({first_line(error).rstrip('.')})"
        start = start._replace(running=None, reason=reason)
        return make_environments(config, start.steps), start
    return environments, start


def make_loop(
    config: RunConfig,
    agent: Agent,
    environments: list[VectorEnvironment],
    start: Start = NEW,
    data: Iterable[Any] | None = None,
) -> Loop:
    """The loop of a resolved run in one process, at its beginning; closes the environments.

    It acts in `environments`, made for `start`, or learns from the episodes `data`. Episodes that
    do not continue begin here: an environment may refuse before a file is written.

    Raises:
      ValueError: the replay is too small for one sequence or larger than the memory; an episode is
        refused; or the run learned from data, and none are given.
    """
    if data is not None:
        from .logged import LoggedLoop  # only here, as workers below: most runs need neither

        return LoggedLoop(config, agent, environments[0], data)
    if start.running is not None and not start.environment_states:
        raise ValueError(
            "The run learned from data: continue it with "
            "retrax.train(config, directory, data=..., resume=True)."
        )
    loop = _acting_loop(config, agent, environments)
    if start.running is None:
        loop.reset()
    return loop


def _acting_loop(config: RunConfig, agent: Agent, environments: list[VectorEnvironment]) -> Loop:
    if config.workers.num_workers:
        from .workers.assembly import make_workers

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
        parameters: Learner | ParameterClient = learner
        if server is not None and period is not None:
            parameters = ParameterClient(
                server.get, server.packing, update_period=period, threaded=False
            )
        actors.append(Actor.of_run(config, agent, environment, index, writer, parameters))
    seed = derive_seed(config.seed, Purpose.ORDER)
    order = np.random.default_rng(seed) if len(actors) > 1 else None
    return Loop(actors, learner, [replay], order=order)
