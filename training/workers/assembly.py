"""How workers and their parameter server are made, in one process and in a program."""

from collections.abc import Callable

import jax

from ...agents.base import Agent
from ...datatypes import EnvironmentSpec, VectorEnvironment
from ...replay.local import LocalReplay
from ...replay.packing import TreePacking
from ...replay.rows import sample_shapes
from ..actor import Actor
from ..learner import Learner, update_shapes
from ..loop import Loop
from ..metrics import MetricsAccumulator
from ..parameters import Get, ParameterServer
from ..run_config import RunConfig
from ..seeds import Purpose, derive_seed
from .in_turn import WorkersInTurn
from .remote_updates import Apply, RemoteUpdates, metric_names
from .server import GradientServer, StatePacking
from .worker import Worker


class WorkerFactory:
    """Makes the server and the workers of a run, whose packings are the same.

    Attributes:
      metric_names: of the metrics of every worker's learner.
      gradients: their packing.
    """

    def __init__(self, config: RunConfig, agent: Agent, spec: EnvironmentSpec):
        """Takes a resolved run, its agent, and the spec of one environment."""
        self._config, self._agent, self._spec = config, agent, spec
        num_envs = config.environments_per_replay
        calls = sample_shapes(spec, agent.sequence, config.replay, num_envs=num_envs)
        shapes = update_shapes(calls, config.replay.updates_per_call)
        state = jax.eval_shape(agent.init, jax.random.key(0))
        gradients, _ = jax.eval_shape(agent.gradients, state, shapes[0])
        self.gradients = TreePacking("A worker's gradients", gradients)
        self._states = StatePacking(agent, shapes)
        names = metric_names(agent, state, shapes[0])
        self.metric_names = [*names, *LocalReplay.metric_names]

    def server(self, parameters: ParameterServer | None = None) -> GradientServer:
        """The parameter server, at the run's beginning; publishes acting parameters if given."""
        return GradientServer(
            self._agent,
            self.gradients,
            self._states,
            key=self._config.prng_keys()[0],
            max_staleness=self._config.workers.max_staleness,
            parameters=parameters,
        )

    def worker(
        self,
        index: int,
        environment: VectorEnvironment,
        *,
        apply: Apply,
        get: Get,
        restored: Callable[[], int] = lambda: 0,
        restarts: int = 0,
        metrics: MetricsAccumulator | None = None,
    ) -> tuple[Worker, Actor]:
        """Worker number `index`, and the actor that writes into its replay.

        `apply`, `get` and `restored` are those of the `GradientServer`. The actor closes the
        environment. `metrics`, to which the learner adds, are its own if None.
        """
        config, agent = self._config, self._agent
        replay = LocalReplay(
            self._spec,
            agent.sequence,
            config.replay,
            num_envs=config.environments_per_replay,
            seed=_replay_seed(config, index),
        )

        def lost(version: int) -> None:  # each worker makes its share of these updates again
            replay.owe(-(-(version - restored()) // config.workers.num_workers))

        updates = RemoteUpdates(
            agent,
            self.gradients,
            self._states,
            apply=apply,
            get=get,
            worker=index,
            restarts=restarts,
            gradients_per_fetch=config.workers.gradients_per_fetch,
            fetches_first=not config.replay.on_policy,
            lost=lost,
        )
        learner = Learner.of_run(config, agent, replay, updates=updates, metrics=metrics)
        writer = replay.writer(range(config.environments_per_replay))
        actor = Actor.of_run(config, agent, environment, index, writer, learner)
        return Worker(learner, updates, replay), actor


def make_workers(config: RunConfig, agent: Agent, environments: list[VectorEnvironment]) -> Loop:
    """The loop of a run whose workers take turns in this process; arguments: see `make_loop`.

    Raises:
      ValueError: workers are decoupled.
    """
    if config.workers.decoupled:
        raise ValueError("WorkerOptions.decoupled must be False in one process: it takes threads.")
    factory = WorkerFactory(config, agent, environments[0].spec)
    server, metrics = factory.server(), MetricsAccumulator()
    made = [
        factory.worker(index, environment, apply=server.apply, get=server.get, metrics=metrics)
        for index, environment in enumerate(environments)
    ]
    learner = WorkersInTurn(server, [worker for worker, _ in made], metrics)
    replays = [worker.replay for worker, _ in made]
    return Loop([actor for _, actor in made], learner, replays)


def _replay_seed(config: RunConfig, index: int) -> int:
    """A single worker draws what one process draws."""
    if config.workers.num_workers == 1:
        return config.seed
    return derive_seed(config.seed, Purpose.WORKER, index)
