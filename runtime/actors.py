"""The learner of a run, and one actor: its part of the run's environments, keys and numbers."""

import jax

from ..agents.base import Agent, Params
from ..datatypes import VectorEnvironment
from ..replay.interface import Replay, Writer
from .actor import Actor, ParameterSource
from .learner import Learner
from .metrics import MetricsAccumulator
from .parameters import ParameterServer
from .run_config import RunConfig
from .updates import Updates


class NewestParameters:
    """Parameters straight from a learner in this process: a `ParameterSource`."""

    new_priority = 1.0  # a local replay takes none

    def __init__(self, learner: Learner):
        self._learner = learner

    @property
    def params(self) -> Params:
        """The newest."""
        return self._learner.params

    def wait(self) -> None:
        """Returns at once."""

    def step(self) -> None:
        """Does nothing: there is nothing to fetch."""


def run_keys(config: RunConfig) -> tuple[jax.Array, jax.Array]:
    """PRNG keys of a run: the learner's, and one for each environment `[num_envs]`."""
    learner, actors = jax.random.split(jax.random.key(config.seed))
    return learner, jax.random.split(actors, config.num_envs)


def make_run_learner(
    config: RunConfig,
    agent: Agent,
    replay: Replay,
    *,
    parameters: ParameterServer | None = None,
    updates: Updates | None = None,
    metrics: MetricsAccumulator | None = None,
) -> Learner:
    """The learner of a resolved run; the other arguments are those of `Learner`."""
    return Learner(
        agent,
        replay,
        key=run_keys(config)[0],
        updates_per_call=config.replay.updates_per_call,
        parameters=parameters,
        num_devices=config.learner_devices,
        updates=updates,
        metrics=metrics,
    )


def make_run_actor(
    config: RunConfig,
    agent: Agent,
    environment: VectorEnvironment,
    index: int,
    writer: Writer,
    parameters: ParameterSource,
) -> Actor:
    """Actor number `index` of a run.

    Args:
      config: resolved.
      agent: made by the config's entry.
      environment: the actor's own, which it closes.
      index: 0 .. num_actors - 1.
      writer: takes the rows of `config.environments_of(index)`.
      parameters: read at every step.
    """
    mine = config.environments_of(index)
    return Actor(
        agent,
        environment,
        writer,
        parameters,
        keys=run_keys(config)[1][mine.start : mine.stop],
        first_id=mine.start,
        num_actors=config.num_envs,
        episode_metrics=config.entry.episode_metrics,
    )
