"""The loop of a run on a device: many time steps in one compiled call, snapshots between them."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.base import Agent, LearnerState, Params
from ..basics.memory import check_memory
from ..datatypes import ReplayConfig
from ..environments.pure import PureVector, leaves_of, with_leaves
from ..replay.stored import check_stored_as, stored_as
from ..runtime.learner import Snapshot, diverged
from ..runtime.loop import Loop
from ..runtime.metrics import MetricsAccumulator
from ..runtime.run_config import RunConfig
from .learning import TrainState
from .training import LARGEST_COUNT, make_training

_MAX_ROWS = 1024  # time steps of every environment in one call
_FIRST_ROWS = 16
_SECONDS = 0.25  # that a call should take: a stop waits for it


class DeviceLoop(Loop):
    """A `Loop` whose state is on the device.

    All of it is in a snapshot, the environments too: a resumed run continues exactly.

    Attributes:
      counters: see `Loop`.
      learner: the learner's side of the state.
      replays: the replay, described.
      seconds: spent in calls, the compilation included.
    """

    learner: "_Learner"

    def __init__(self, config: RunConfig, agent: Agent, environment: PureVector):
        """Makes the first state.

        Args:
          config: resolved, of one actor.
          agent: made by the config's entry.
          environment: whose pure environment is stepped.

        Raises:
          ValueError: the replay is not possible on a device or larger than the memory.
        """
        if config.schedule[0] > LARGEST_COUNT:
            raise ValueError(
                f"steps must be at most {LARGEST_COUNT} on a device, got {config.schedule[0]}."
            )
        training = make_training(
            agent,
            environment.pure,
            config.replay,
            num_envs=config.num_envs,
            episode_metrics=tuple(config.entry.episode_metrics),
        )
        learner = _Learner(agent, sorted(training.no_sums.metrics), config.replay)
        replay = _Described(training.replay.capacity, training.replay.nbytes)
        check_memory(f"A replay of {replay.capacity} rows", replay.nbytes, replay.capacity)
        super().__init__([], learner, [replay])
        self._training, self._num_envs = training, config.num_envs
        self._init = jax.jit(training.init)
        self._advance = jax.jit(training.advance, donate_argnums=0)
        self._calls, self._rows = training.calls(), _FIRST_ROWS
        learner.whole = self._init(jax.random.key(config.seed))

    def advance(self, until: int = 0) -> None:
        """Time steps in every environment with all updates that are due after each: at least one.

        Args:
          until: steps of the run, at which this returns, or with the first time step beyond.
        """
        started, self._is_advancing = time.perf_counter(), True
        allowed = max(1, (until - self.counters.steps) // self._num_envs)
        count = min(self._rows, allowed)
        calls = np.zeros((_MAX_ROWS, 2), np.int32)
        calls[:count] = [next(self._calls) for _ in range(count)]
        self.learner.whole, episodes = self._advance(self.learner.whole, calls, jnp.int32(count))
        self._take(jax.device_get(episodes), count)
        self._is_advancing = False
        elapsed = time.perf_counter() - started
        if elapsed > 2 * _SECONDS:
            self._rows = max(1, self._rows // 2)
        elif elapsed < _SECONDS and count == self._rows:
            self._rows = min(_MAX_ROWS, 2 * self._rows)
        self.seconds += elapsed
        # One call does both: the rates of acting and learning are of the same seconds.
        self._acting_seconds = self._learning_seconds = self._acting_seconds + elapsed

    def flush(self) -> tuple[dict[str, float], dict[str, float]]:
        """Means of metrics, and rates per second of calls, since the last call."""
        sums = jax.device_get(self.learner.whole.sums)
        if sums.updates:
            self.learner.metrics.add(jax.device_get(sums.means()), int(sums.updates))
            zeros = jax.tree.map(jnp.zeros_like, sums)
            self.learner.whole = self.learner.whole._replace(sums=zeros)
        means, clock = super().flush()
        return means, {**clock, "steps_per_second": clock["acting_steps_per_second"]}

    def actor_states(self) -> Any:
        """The states of all actors, `[num_envs, ...]`; valid until the next step."""
        return self.learner.whole.actors

    def actors_template(self) -> Any:
        """Shapes and dtypes of a snapshot's `actors`."""
        return jax.eval_shape(lambda: self.learner.whole.actors)

    def window(self) -> list[Any]:
        """See `Loop`, with the sums of the state in place of the learner's metrics."""
        since, episodes, _ = super().window()
        return [since, episodes, [np.array(x) for x in leaves_of(self.learner.whole.sums)]]

    def running(self) -> dict[str, Any]:
        """Nothing: the replay's part of a snapshot has the environments."""
        return {}

    def restore(
        self,
        snapshot: Snapshot,
        window: Sequence[Any] | None = None,
        running: Mapping[str, Any] | None = None,
    ) -> None:
        """Restores a snapshot; `running` is not needed."""
        sums: list[np.ndarray] | None = None
        if window is not None:  # a snapshot's own sums may have been written into a row already
            since, episodes, sums = window
            window = [since, episodes, self.learner.metrics.state()]
        super().restore(snapshot, window, {"actors": [], "order": None, "published": None})
        if sums is not None:
            whole = self.learner.whole
            self.learner.whole = whole._replace(sums=with_leaves(whole.sums, sums))
        self._calls = self._training.calls()
        for _ in range(int(self.learner.whole.progress.rows)):
            next(self._calls)

    def _take(self, episodes: dict[str, np.ndarray], count: int) -> None:
        """Counts what a call has done, and refuses to go on after a divergence."""
        progress = jax.device_get(self.learner.whole.progress)
        if progress.diverged_at >= 0:
            raise diverged(int(progress.diverged_at))
        found = {name: values[:count].ravel() for name, values in episodes.items()}
        ended = {name: x[~np.isnan(x)].tolist() for name, x in found.items()}
        self._episodes.add_episodes(ended)
        self.counters.episodes += len(ended["return"])
        self.counters.steps = int(progress.steps)
        self._count_updates()


class _Learner:
    """A `LoopLearner` that is part of the state; nothing else publishes or steps it."""

    whole: TrainState

    def __init__(self, agent: Agent, names: Sequence[str], config: ReplayConfig):
        self.metrics = MetricsAccumulator()
        self.metric_names = names
        self._agent, self._config = agent, config

    @property
    def state(self) -> LearnerState:
        return self.whole.learner

    @property
    def params(self) -> Params:
        return self._agent.acting_params(self.state)

    @property
    def updates(self) -> int:
        return int(self.whole.progress.updates)

    @property
    def learning_since(self) -> int:
        return int(self.whole.progress.learning_since)

    def publish(self) -> None: ...

    def step(self) -> bool:
        return False

    def finish(self) -> None: ...

    def snapshot(self) -> Snapshot:
        """Orbax saves no empty arrays: they are left out, and `restore` makes them."""
        leaves = {str(i): x for i, x in enumerate(leaves_of(self._rest())) if x.size}
        kind = stored_as(self._agent.sequence, self._config)
        return Snapshot(_copy(self.state), {**leaves, **kind}, {"updates": self.updates})

    def restore(self, snapshot: Snapshot) -> None:
        found = snapshot.replay
        check_stored_as(found, self._agent.sequence, self._config)
        leaves = leaves_of(self._rest())
        rest = [found[str(i)] if x.size else x for i, x in enumerate(leaves)]
        restored: TrainState = with_leaves(self._rest(), rest)
        self.whole = restored._replace(
            learner=jax.device_put(_copy(snapshot.learner)),
            actors=jax.device_put(_copy(snapshot.actors)),
        )

    def _rest(self) -> TrainState:
        return self.whole._replace(learner=(), actors=())

    def published(self) -> None:
        return None

    def restore_published(self, state: Any) -> None: ...

    def close(self) -> None: ...


class _Described:
    """A `LoopReplay`: the rows are in the state, and no episode is ever left in the middle."""

    def __init__(self, capacity: int, nbytes: int):
        self.capacity, self.nbytes = capacity, nbytes

    def cut(self) -> None: ...


def _copy(tree: Any) -> Any:
    """Copies arrays, whose originals the next call donates."""
    return jax.tree.map(lambda x: x.copy(), tree)
