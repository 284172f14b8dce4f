"""A program: which nodes there are, and who talks to whom. The same for every agent."""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import launchpad as lp

from .._validation import check_range
from ..agents.base import Agent
from ..environments import EnvironmentSpec, make
from ..experiments.config import RunConfig, agent_package, derive_seed
from ..experiments.snapshots import Snapshots
from ..replay.paced import LearnerReplay
from ..replay.reverb_library import reverb
from ..replay.reverb_replay import (
    SEQUENCES,
    RowWriter,
    make_learner_replay,
    make_tables,
    table_name,
)
from ..replay.spec import ReplayConfig
from .acting import Actor, SingleEnvironment
from .calls import CALL_SECONDS, patient
from .checkpoints import Checkpoints
from .counting import Counter
from .learning import Learner
from .lifecycle import Lives, Node, StopEvent
from .nodes import ActorNode, CounterCalls, EvaluatorNode, LearnerNode
from .parameters import ParameterClient, ParameterServer
from .replay_node import ReplayNode

OPTIONS = "program.json"
SERVING = ("replay", "counter", "learner")  # nodes that others call
_SEED_OF = {"actor": 2, "evaluator": 3}  # what `derive_seed` is asked for; 1 is `retrax evaluate`
_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "NPROC": "1"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramConfig:
    """A run as a program: that of one process, and what only a program has."""

    run: RunConfig
    """As in one process; `num_envs` is the number of actors, each of which has one environment."""

    directory: Path
    """The run directory."""

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
        check_range(self, "actor_update_period", 1)
        check_range(self, "evaluation_episodes", 1)
        check_range(self, "final_evaluation_seconds", 0.0)

    @property
    def num_actors(self) -> int:
        """Actors, each with one environment."""
        return self.run.num_envs

    def seed(self, label: str, *more: int) -> int:
        """The seed of a node's environments, another one for each part of a resumed run."""
        return derive_seed(self.run.seed, _SEED_OF[label], *more, self.resumed_at or 0)


class Parts:
    """What the nodes of a program are made from; every node makes what it needs."""

    def __init__(self, config: ProgramConfig):
        """Args: `config`."""
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

    def keys(self) -> tuple[jax.Array, jax.Array]:
        """The learner's key and the actors', as in one process."""
        learner, actors = jax.random.split(jax.random.key(self.config.run.seed))
        return learner, jax.random.fold_in(actors, self.config.resumed_at or 0)

    def tables(self) -> list[reverb.Table]:
        """Of the replay node."""
        return make_tables(
            self.spec, self.agent.sequence, self.replay, num_environments=self.config.num_actors
        )

    @functools.cached_property
    def checkpoints(self) -> Checkpoints | None:
        """Of the replay's server, if it keeps the sequences."""
        in_table = table_name(self.replay) == SEQUENCES
        return Checkpoints(self.config.directory) if in_table else None

    def checkpointer(self) -> Any:
        """Of the replay node; None if the server keeps nothing."""
        if self.checkpoints is None:
            return None
        return reverb.checkpointers.DefaultCheckpointer(str(self.checkpoints.live))

    def counter(self, *, stop: StopEvent) -> Counter:
        """The counter."""
        run = self.config.run
        return Counter(
            self.config.directory,
            steps=run.steps,
            log_every=run.log_every,
            num_actors=self.config.num_actors,
            final_evaluation_seconds=self.config.final_evaluation_seconds,
            stop=stop,
        )

    def learner_replay(self, address: str, stop: StopEvent) -> LearnerReplay:
        """The learner's end of the replay."""
        del stop
        return make_learner_replay(
            address,
            self.spec,
            self.agent.sequence,
            self.replay,
            num_environments=self.config.num_actors,
            seed=self.config.run.seed,
        )

    def learner(
        self, counter: CounterCalls, replay: LearnerReplay, *, stop: StopEvent, wait: float = 1.0
    ) -> LearnerNode:
        """The learner, restored if the run is.

        Args:
          counter: where it reports to.
          replay: its end of the replay.
          stop: when to end.
          wait: seconds that a step may wait; 0 in a program of one thread.
        """
        parameters = ParameterServer(patience=0.2 if wait else 0.0)
        learner = Learner(self.agent, replay, parameters, key=self.keys()[0], wait=wait)
        shapes = jax.eval_shape(self.agent.init, self.keys()[0])
        counters: dict[str, Any] = {}
        if self.config.resumed_at is not None:
            snapshots = Snapshots(self.config.directory, writable=False)
            snapshot = snapshots.restore(shapes)
            snapshots.close()
            learner.restore(snapshot)
            counters = dict(snapshot.counters)
        _, update = jax.eval_shape(self.agent.update, shapes, replay.sample_shape())
        return LearnerNode(
            learner,
            replay,
            parameters,
            counter,
            self.config.directory,
            metric_names=sorted(update.metrics),
            counters=counters,
            snapshot_every=self.config.run.snapshot_every,
            checkpoints=self.checkpoints if wait else None,
            report_seconds=wait,
            stop=stop,
        )

    def actor(
        self,
        index: int,
        counter: CounterCalls,
        get: Callable[..., Any],
        writer: Any,
        *,
        stop: StopEvent,
        threaded: bool = True,
    ) -> ActorNode:
        """Actor number `index`."""
        config = self.config
        environment = make(config.run.environment, seed=config.seed("actor", index))
        client = ParameterClient(
            get, update_period=config.actor_update_period, stop=stop.is_set, threaded=threaded
        )
        key = jax.random.split(self.keys()[1], config.num_actors)[index]
        actor = Actor(
            self.agent,
            client,
            key=key,
            writer=writer,
            actor_id=index,
            num_actors=config.num_actors,
        )
        return ActorNode(
            f"actor/{index}", SingleEnvironment(environment), actor, client, counter, stop=stop
        )

    def writer(self, client: reverb.Client, index: int, stop: StopEvent) -> RowWriter:
        """Actor number `index`'s writer."""
        return RowWriter(
            client,
            self.spec,
            self.agent.sequence,
            self.replay,
            environment=index,
            stop=stop.is_set,
        )

    def evaluator(
        self, counter: CounterCalls, get: Callable[..., Any], *, stop: StopEvent
    ) -> EvaluatorNode:
        """The evaluator."""
        config = self.config
        seed = config.seed("evaluator")
        num_envs = min(config.evaluation_episodes, 4)
        environment = make(config.run.environment, seed=seed, num_envs=num_envs)
        client = ParameterClient(get, update_period=1, stop=stop.is_set, threaded=False)
        return EvaluatorNode(
            self.agent,
            environment,
            client,
            counter,
            episodes=config.evaluation_episodes,
            key=jax.random.key(seed),
            stop=stop,
        )


# The nodes' factories. Each is called in its node, where handles have become clients.


class _Calls:
    """A counter's client whose calls are repeated until they are answered."""

    def __init__(self, client: Any, stop: StopEvent):
        self.start = patient(client.start, "The counter", stop)
        self.claim = patient(client.claim, "The counter", stop)
        self.report = patient(client.report, "The counter", stop)


def _counter(config: ProgramConfig, *, stop: StopEvent) -> Counter:
    return Parts(config).counter(stop=stop)


def _learner(
    config: ProgramConfig, *, counter: Any, replay: reverb.Client, stop: StopEvent
) -> LearnerNode:
    parts = Parts(config)
    learner_replay = parts.learner_replay(replay.server_address, stop)
    return parts.learner(_Calls(counter, stop), learner_replay, stop=stop)


def _actor(
    config: ProgramConfig,
    *,
    index: int,
    counter: Any,
    learner: Any,
    replay: reverb.Client,
    stop: StopEvent,
) -> ActorNode:
    parts = Parts(config)
    writer = parts.writer(replay, index, stop)
    return parts.actor(index, _Calls(counter, stop), learner.get, writer, stop=stop)


def _evaluator(
    config: ProgramConfig, *, counter: Any, learner: Any, stop: StopEvent
) -> EvaluatorNode:
    return Parts(config).evaluator(_Calls(counter, stop), learner.get, stop=stop)


def _tables(config: ProgramConfig) -> list[reverb.Table]:
    return Parts(config).tables()


def _checkpointer(config: ProgramConfig) -> Any:
    return Parts(config).checkpointer()


def make_program(config: ProgramConfig, lives: Lives) -> lp.Program:
    """The program; it only wires.

    Args:
      config: what to run.
      lives: whether its nodes are processes of this one, or its threads.
    """
    program = lp.Program(config.run.agent)
    ports = {} if config.port is None else {k: config.port + i for i, k in enumerate(SERVING)}

    def add(label: str, factory: Callable[..., Any], **handles: Any) -> Any:
        made_here = functools.partial(factory, config)
        node = Node(lives, label, made_here, port=ports.get(label), **handles)
        handle = program.add_node(node, label)
        handle.set_client_kwargs(call_timeout=CALL_SECONDS)
        return handle

    tables = functools.partial(_tables, config)
    checkpointer = functools.partial(_checkpointer, config)
    replay = program.add_node(
        ReplayNode(lives, tables, checkpointer, port=ports.get("replay")), "replay"
    )
    counter = add("counter", _counter)
    learner = add("learner", _learner, counter=counter, replay=replay)
    for index in range(config.num_actors):
        add("actor", _actor, index=index, counter=counter, learner=learner, replay=replay)
    add("evaluator", _evaluator, counter=counter, learner=learner)
    return program


def environments(config: ProgramConfig) -> dict[str, dict[str, str]]:
    """Environment variables of each label's processes: only the learner sees an accelerator."""
    shared = {
        "PYTHONUNBUFFERED": "1",
        "JAX_COMPILATION_CACHE_DIR": str((config.directory / "compilation_cache").absolute()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
    cpu = {**shared, **_CPU}
    return {"learner": shared, **dict.fromkeys(("replay", "counter", "actor", "evaluator"), cpu)}


def write_options(config: ProgramConfig) -> None:
    """Writes program.json."""
    options = dataclasses.asdict(config)
    kept = {k: v for k, v in options.items() if k not in ("run", "directory", "resumed_at")}
    (config.directory / OPTIONS).write_text(json.dumps(kept, indent=2) + "\n")
