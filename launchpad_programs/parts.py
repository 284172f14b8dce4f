"""What the nodes are made from; each node makes its own, by the functions here.

TensorFlow, which Reverb and Acme load, takes seconds and hundreds of megabytes, and the counter and
the evaluator do without. So the functions import what their node needs when they are called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from ..agents.base import Agent
from ..datatypes import ReplayConfig
from ..environments import EnvironmentSpec, make
from ..experiments.config import agent_package
from .checkpoints import Checkpoints
from .config import ProgramConfig
from .lifecycle import StopEvent

if TYPE_CHECKING:
    from ..replay.paced import LearnerReplay
    from .actor_node import ActorNode
    from .calls import CounterCalls
    from .counting import Counter
    from .evaluator_node import EvaluatorNode
    from .learner_node import LearnerNode

_EVALUATION_ENVIRONMENTS = 4  # stepped together


class Parts:
    """What all nodes have in common.

    Attributes:
      config: of the program.
      replay: of the agent's config.
    """

    def __init__(self, config: ProgramConfig):
        """Takes the config."""
        self.config = config
        self.replay: ReplayConfig = config.run.agent_config.replay

    @functools.cached_property
    def spec(self) -> EnvironmentSpec:
        """Of one environment."""
        probe = make(self.config.run.environment)
        try:
            return probe.spec
        finally:
            probe.close()

    @functools.cached_property
    def agent(self) -> Agent:
        """The agent."""
        package = agent_package(self.config.run.agent)
        agent: Agent = package.make_agent(self.spec, self.config.run.agent_config)
        return agent

    @property
    def checkpoints(self) -> Checkpoints | None:
        """Of the replay's server, if it keeps the sequences: a queue keeps nothing."""
        queued = self.replay.selector == "contextual"
        return None if queued else Checkpoints(self.config.directory)

    def keys(self) -> tuple[jax.Array, jax.Array]:
        """The learner's key and the actors', as in one process."""
        learner, actors = jax.random.split(jax.random.key(self.config.run.seed))
        return learner, actors


def learner_node(
    parts: Parts, counter: CounterCalls, replay: LearnerReplay, *, stop: StopEvent, wait: float
) -> LearnerNode:
    """The learner, restored if the run is.

    Args:
      parts: of the program.
      counter: where it reports to.
      replay: its end of the replay.
      stop: when to end.
      wait: seconds that a step may wait; 0 in a program of one thread.
    """
    from ..experiments.loop import metric_names
    from ..experiments.snapshots import Snapshots
    from .learner_node import LearnerNode
    from .learning import Learner
    from .parameters import ParameterServer
    from .reports import program_metrics

    config, agent, (key, _) = parts.config, parts.agent, parts.keys()
    parameters = ParameterServer(patience=wait / 5)
    per_call = parts.replay.updates_per_call
    learner = Learner(agent, replay, parameters, key=key, updates_per_call=per_call, wait=wait)
    shapes = jax.eval_shape(agent.init, key)
    counters: dict[str, Any] = {}
    if config.resumed_at is not None:
        snapshots = Snapshots(config.directory, writable=False)
        snapshot = snapshots.restore(shapes)
        snapshots.close()
        learner.restore(snapshot)
        counters = dict(snapshot.counters)
    return LearnerNode(
        learner,
        replay,
        parameters,
        counter,
        config.directory,
        metric_names=[
            *metric_names(agent, shapes, replay.sample_shapes()[0]),
            *program_metrics(agent.sequence, config.num_actors),
        ],
        counters=counters,
        snapshot_every=config.run.snapshot_every,
        checkpoints=parts.checkpoints if wait else None,
        report_seconds=wait,
        stop=stop,
    )


def actor_node(
    parts: Parts,
    index: int,
    counter: CounterCalls,
    get: Callable[..., Any],
    writers: Sequence[Any],
    *,
    stop: StopEvent,
    threaded: bool,
) -> ActorNode:
    """Actor number `index`.

    Args:
      parts: of the program.
      index: 0 .. num_actors - 1.
      counter: grants steps.
      get: gives parameters.
      writers: take the rows of each of its environments.
      stop: when to end.
      threaded: whether parameters come in the background.
    """
    from .acting import VectorActor
    from .actor_node import ActorNode
    from .actor_states import ActorStates
    from .parameters import ParameterClient

    config, mine = parts.config, parts.config.environments_of(index)
    seed = config.seed("actor", index)
    environment = make(config.run.environment, seed=seed, num_envs=len(mine))
    client = ParameterClient(
        get, update_period=config.actor_update_period, stop=stop.is_set, threaded=threaded
    )
    total = config.run.num_envs
    actor = VectorActor(
        parts.agent,
        client,
        keys=jax.random.split(parts.keys()[1], total)[mine.start : mine.stop],
        writers=writers,
        first_id=mine.start,
        num_actors=total,
    )
    states = ActorStates(config.directory, index)
    if config.resumed_at is not None:
        actor.state = states.restore(actor.state)
    return ActorNode(
        f"actor/{index}",
        environment,
        actor,
        client,
        counter,
        states=states,
        save_every=max(1, config.run.snapshot_every // config.num_actors),
        stop=stop,
    )


def evaluator_node(
    parts: Parts, counter: CounterCalls, get: Callable[..., Any], *, stop: StopEvent
) -> EvaluatorNode:
    """The evaluator.

    Args:
      parts: of the program.
      counter: is told the returns.
      get: gives parameters.
      stop: when to end.
    """
    from .evaluator_node import EvaluatorNode
    from .parameters import ParameterClient

    config, seed = parts.config, parts.config.seed("evaluator")
    num_envs = min(config.evaluation_episodes, _EVALUATION_ENVIRONMENTS)
    return EvaluatorNode(
        parts.agent,
        make(config.run.environment, seed=seed, num_envs=num_envs),
        ParameterClient(get, update_period=1, stop=stop.is_set, threaded=False),
        counter,
        episodes=config.evaluation_episodes,
        key=jax.random.key(seed),
        stop=stop,
    )


# The factories of a program's nodes: each is called in its node, with clients of the others.


def make_tables(config: ProgramConfig) -> list[Any]:
    """The replay's tables."""
    from ..replay.reverb_tables import make_tables

    parts = Parts(config)
    return make_tables(
        parts.spec, parts.agent.sequence, parts.replay, num_environments=config.run.num_envs
    )


def make_checkpointer(config: ProgramConfig) -> Any:
    """The replay's checkpointer; a server without one leaves a folder in /tmp behind."""
    from ..replay.reverb_library import reverb

    live = Checkpoints(config.directory).live
    return reverb.checkpointers.DefaultCheckpointer(str(live))


def make_counter(config: ProgramConfig, *, stop: StopEvent) -> Counter:
    """The counter."""
    from .counting import Counter

    return Counter(
        config.directory,
        steps=config.run.steps,
        log_every=config.run.log_every,
        num_actors=config.num_actors,
        final_evaluation_seconds=config.final_evaluation_seconds,
        stop=stop,
    )


def make_learner(
    config: ProgramConfig, *, counter: Any, replay: Any, stop: StopEvent
) -> LearnerNode:
    """The learner, at its end of Reverb."""
    from ..replay.reverb_replay import make_learner_replay
    from .calls import CounterClient

    parts = Parts(config)
    learner_replay = make_learner_replay(
        replay.server_address,
        parts.spec,
        parts.agent.sequence,
        parts.replay,
        num_environments=config.run.num_envs,
        seed=config.run.seed,
    )
    return learner_node(parts, CounterClient(counter, stop), learner_replay, stop=stop, wait=1.0)


def make_actor(
    config: ProgramConfig, *, index: int, counter: Any, learner: Any, replay: Any, stop: StopEvent
) -> ActorNode:
    """An actor that writes into Reverb."""
    from ..replay.reverb_writer import RowWriter
    from .calls import CounterClient

    parts = Parts(config)
    writers = [
        RowWriter(
            replay,
            parts.spec,
            parts.agent.sequence,
            parts.replay,
            environment=environment,
            stop=stop.is_set,
        )
        for environment in config.environments_of(index)
    ]
    client = CounterClient(counter, stop)
    return actor_node(parts, index, client, learner.get, writers, stop=stop, threaded=True)


def make_evaluator(
    config: ProgramConfig, *, counter: Any, learner: Any, stop: StopEvent
) -> EvaluatorNode:
    """The evaluator."""
    from .calls import CounterClient

    return evaluator_node(Parts(config), CounterClient(counter, stop), learner.get, stop=stop)
