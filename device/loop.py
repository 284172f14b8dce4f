"""The loop of a run on a device: many time steps in one compiled call, snapshots between them."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.base import Agent, LearnerState, Params
from ..basics.memory import check_memory
from ..datatypes import ReplayConfig
from ..environments.pure import PureVector, leaves_of, with_leaves
from ..replay.rows import check_stored_as, stored_as
from ..training.learner import Snapshot, diverged
from ..training.loop import Loop
from ..training.metrics import MetricsAccumulator
from ..training.run_config import RunConfig
from ..training.updates import copied
from .learning import TrainState
from .seeds import Seed, Seeds, memory
from .training import LARGEST_COUNT, Training


def make_loops(
    configs: Sequence[RunConfig], agent: Agent, environment: PureVector
) -> list["DeviceLoop"]:
    """The loops of runs that differ in their seeds alone, whose time steps are computed together.

    Args:
      configs: resolved, of one actor.
      agent: made by the configs' entry.
      environment: whose pure environment is stepped.

    Raises:
      ValueError: the replay is not possible on a device or larger than the memory.
    """
    config = configs[0]
    if config.schedule[0] > LARGEST_COUNT:
        raise ValueError(
            f"steps must be at most {LARGEST_COUNT} on a device, got {config.schedule[0]}."
        )
    training = Training(
        agent,
        environment.pure,
        config.replay,
        num_envs=config.num_envs,
        episode_metrics=tuple(config.entry.episode_metrics),
    )
    replay, count = training.replay, len(configs)
    what = f"A replay of {replay.capacity} rows{f' for each of {count} seeds' * (count > 1)}"
    check_memory(what, count * replay.nbytes, replay.capacity, available=memory())
    seeds = Seeds(training, [config.seed for config in configs])
    return [DeviceLoop(config, agent, training, seeds, seed) for seed in seeds.all]


class DeviceLoop(Loop):
    """A `Loop` whose state is on the device.

    All of it is in a snapshot, the environments too: a resumed run continues exactly.

    Attributes:
      counters: see `Loop`.
      learner: the learner's side of the state.
      replays: the replay.
      seconds: spent in calls, the compilation included.
    """

    learner: "_Learner"

    def __init__(
        self, config: RunConfig, agent: Agent, training: Training, seeds: Seeds, seed: Seed
    ):
        """Takes one of the seeds."""
        learner = _Learner(agent, training.metric_names, config.replay, seed)
        super().__init__([], learner, [training.replay])
        self._num_envs, self._seeds, self._seed = config.num_envs, seeds, seed

    def announce(self, until: int) -> None:
        """See `Loop`; may be left out where there is one seed."""
        self._seed.allowed = max(1, (until - self.counters.steps) // self._num_envs)

    def advance(self, until: int = 0) -> None:
        """Time steps in every environment with all updates that are due after each.

        At least one, but none in seeds that have taken more than others.

        Args:
          until: steps of the run, at which this returns, or with the first time step beyond.
        """
        seed, self._is_advancing = self._seed, True
        if seed.episodes is None and not seed.seconds:
            self.announce(until)
            self._seeds.compute()
        self._take(seed.episodes or {})
        self._is_advancing = False
        self.seconds += seed.seconds
        # One call does both: the rates of acting and learning are of the same seconds.
        self._acting_seconds = self._learning_seconds = self._acting_seconds + seed.seconds
        seed.episodes, seed.seconds = None, 0.0

    def flush(self) -> tuple[dict[str, float], dict[str, float]]:
        """Means of metrics, and rates per second of calls, since the last call."""
        state = self._seed.state
        sums = jax.device_get(state.sums)
        if sums.updates:
            self.learner.metrics.add(jax.device_get(sums.means()), int(sums.updates))
            self._seed.state = state._replace(sums=jax.tree.map(jnp.zeros_like, state.sums))
        means, clock = super().flush()
        return means, {**clock, "steps_per_second": clock["acting_steps_per_second"]}

    def actor_states(self) -> Any:
        """The states of all actors, `[num_envs, ...]`; valid until the next step."""
        return self._seed.state.actors

    def open_metrics(self) -> list[Any]:
        """See `Loop`; the sums of the state are with them."""
        return [*super().open_metrics(), [np.array(x) for x in leaves_of(self._seed.state.sums)]]

    def running(self) -> dict[str, Any]:
        """Nothing: the environments are in `Snapshot.replay`."""
        return {}

    def restore(
        self,
        snapshot: Snapshot,
        open_metrics: Sequence[Any] | None = None,
        running: Mapping[str, Any] | None = None,
    ) -> None:
        """Restores a snapshot; `running` is not needed."""
        *rest, sums = open_metrics or [None]
        super().restore(snapshot, rest or None)
        seed = self._seed
        if sums is not None:  # those in the snapshot may have been written into a row already
            seed.state = seed.state._replace(sums=with_leaves(seed.state.sums, sums))
        seed.state = jax.device_put(seed.state, seed.device)
        seed.rows = int(seed.state.progress.rows)

    def _take(self, episodes: Mapping[str, np.ndarray]) -> None:
        """Counts what was computed, and refuses to go on after a divergence."""
        progress = jax.device_get(self._seed.state.progress)
        if progress.diverged_at >= 0:
            raise diverged(int(progress.diverged_at))
        ended = {name: x[~np.isnan(x)].tolist() for name, x in episodes.items()}
        self._episodes.add_episodes(ended)
        self.counters.episodes += len(ended.get("return", ()))
        self.counters.steps = int(progress.steps)
        self._count_updates()


class _Learner:
    """A `LoopLearner` within the state of a run; nothing else publishes or steps it."""

    def __init__(self, agent: Agent, names: Sequence[str], config: ReplayConfig, seed: Seed):
        self.metrics = MetricsAccumulator()
        self.metric_names = names
        self._agent, self._config, self._seed = agent, config, seed

    @property
    def state(self) -> LearnerState:
        return self._seed.state.learner

    @property
    def params(self) -> Params:
        return self._agent.acting_params(self.state)

    @property
    def updates(self) -> int:
        return int(self._seed.state.progress.updates)

    @property
    def learning_since(self) -> int:
        return int(self._seed.state.progress.learning_since)

    def publish(self) -> None: ...

    def step(self) -> bool:
        return False

    def finish(self) -> None: ...

    def snapshot(self) -> Snapshot:
        leaves = {str(i): x for i, x in enumerate(leaves_of(self._rest()))}
        kind = stored_as(self._agent.sequence, self._config)
        return Snapshot(copied(self.state), {**leaves, **kind}, {"updates": self.updates})

    def restore(self, snapshot: Snapshot) -> None:
        found = snapshot.replay
        check_stored_as(found, self._agent.sequence, self._config)
        leaves = [found[str(i)] for i in range(len(jax.tree.leaves(self._rest())))]
        restored: TrainState = with_leaves(self._rest(), leaves)
        self._seed.state = restored._replace(
            learner=copied(snapshot.learner), actors=copied(snapshot.actors)
        )

    def _rest(self) -> TrainState:
        return self._seed.state._replace(learner=(), actors=())

    def running(self) -> None:
        return None

    def restore_running(self, state: Any) -> None: ...

    def close(self) -> None: ...
