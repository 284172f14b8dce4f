"""The loop of a run on a device: many time steps in one compiled call, snapshots between them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.base import Agent, LearnerState, Params
from ..basics.memory import check_memory
from ..datatypes import EnvironmentSpec, VectorEnvironment
from ..environments.observations import place
from ..environments.pure import PureVector, leaves_of, with_leaves
from ..environments.sequential import check_finite
from ..replay.rows import check_stored_as, stored_as
from ..training.learner import MetricsAccumulator, Snapshot, copied, diverged
from ..training.loop import Tally
from ..training.run_config import RunConfig
from .replay import DeviceReplay
from .seeds import Seed, Seeds, memory
from .training import LARGEST_COUNT, WRONG, Training, TrainState


def make_loops(
    configs: Sequence[RunConfig], agent: Agent, environments: Sequence[VectorEnvironment]
) -> list["DeviceLoop"]:
    """The loops of runs that differ in their seeds alone, whose time steps are computed together.

    Configs are resolved; of the one `PureVector`, the pure environment is stepped.
    """
    config, (environment,) = configs[0], environments
    assert isinstance(environment, PureVector), "RunConfig.make_environment gives no others"
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
    check_seeds(config, agent, environment.spec, len(configs))
    seeds = Seeds(training, [config.seed for config in configs])
    loops = [DeviceLoop(config, agent, training, seeds, seed) for seed in seeds.all]
    for loop in loops:
        loop.together = loops
    return loops


def check_seeds(config: RunConfig, agent: Agent, spec: EnvironmentSpec, count: int) -> None:
    """Refuses (ValueError) replays of so many seeds that are larger than the memory."""
    replay = DeviceReplay(spec, agent.sequence, config.replay, num_envs=config.num_envs)
    what = f"A replay of {replay.capacity} rows{f' for each of {count} seeds' * (count > 1)}"
    check_memory(what, count * replay.nbytes, replay.capacity, available=memory())


class DeviceLoop(Tally):
    """A loop whose state is on the device; its time steps are computed with those of other seeds.

    All of it is in a snapshot, the environments too: a resumed run continues exactly.
    """

    def __init__(
        self, config: RunConfig, agent: Agent, training: Training, seeds: Seeds, seed: Seed
    ):
        """Begins one of the seeds."""
        super().__init__([training.replay], MetricsAccumulator(), training.metric_names)
        self._config, self._num_envs = config.replay, config.num_envs
        self._agent, self._seeds, self._seed = agent, seeds, seed
        self._seen = training.spec.observations.shape
        self.together = [self]  # the loops of all seeds

    @property
    def learner_state(self) -> LearnerState:
        """See `Loop`."""
        return self._seed.state.learner

    @property
    def params(self) -> Params:
        """See `Loop`."""
        return self._agent.acting_params(self._seed.state.learner)

    def actor_states(self) -> Any:
        """See `Loop`."""
        return self._seed.state.actors

    def advance(self) -> None:
        """Time steps in every environment with all updates that are due after each, up to `until`.

        At least one, and the one that passes `until`; but none in seeds that have taken more than
        others.
        """
        seed, self._is_advancing = self._seed, True
        if seed.episodes is None and not seed.seconds:
            for loop in self.together:
                if loop.until or loop is self:  # those that have ended take no more steps
                    left = loop.until - loop.counters.steps
                    loop._seed.allowed = max(1, left // self._num_envs)
            self._seeds.compute()
        self._take(seed.episodes or {})
        self._is_advancing = False
        # One call does both: the rates of acting and learning are of the same seconds.
        self._acting_seconds = self._learning_seconds = self._acting_seconds + seed.seconds
        seed.episodes, seed.seconds, self.until = None, 0.0, 0

    def flush(self) -> tuple[dict[str, float], dict[str, float]]:
        """Means of metrics, and rates per second of calls, since the last call."""
        state = self._seed.state
        sums = jax.device_get(state.sums)
        if sums.updates:
            self._metrics.add(jax.device_get(sums.means()), int(sums.updates))
            self._seed.state = state._replace(sums=jax.tree.map(jnp.zeros_like, state.sums))
        means, clock = super().flush()
        return means, {**clock, "steps_per_second": clock["acting_steps_per_second"]}

    def open_metrics(self) -> list[Any]:
        """See `Tally`; the sums of the state are with them."""
        return [*super().open_metrics(), [np.array(x) for x in leaves_of(self._seed.state.sums)]]

    def running(self) -> dict[str, Any]:
        """Nothing: the environments are in `Snapshot.replay`."""
        return {}

    def snapshot(self) -> Snapshot:
        """Everything."""
        state = self._seed.state
        leaves = {str(i): x for i, x in enumerate(leaves_of(_rest(state)))}
        kind = stored_as(self._agent.sequence, self._config)
        learner, counters = copied(state.learner), dict(vars(self.counters))
        return Snapshot(learner, {**leaves, **kind}, counters, actors=state.actors)

    def restore(
        self,
        snapshot: Snapshot,
        open_metrics: Sequence[Any] | None = None,
        running: Mapping[str, Any] | None = None,
    ) -> None:
        """Restores a snapshot; `running` is not needed."""
        found, seed, before = snapshot.replay, self._seed, _rest(self._seed.state)
        check_stored_as(found, self._agent.sequence, self._config)
        leaves = [found[str(i)] for i in range(len(jax.tree.leaves(before)))]
        state: TrainState = with_leaves(before, leaves)
        state = state._replace(learner=copied(snapshot.learner), actors=copied(snapshot.actors))
        *rest, sums = open_metrics or [None]
        self._restore(snapshot.counters, rest or None)
        if sums is not None:  # those in the snapshot may have been written into a row already
            state = state._replace(sums=with_leaves(state.sums, sums))
        seed.state = jax.device_put(state, seed.device)
        seed.rows = int(state.progress.rows)

    def close(self) -> None:
        """Does nothing: there are no threads, and no environments but those of the state."""

    def _take(self, episodes: dict[str, np.ndarray]) -> None:
        """Counts what was computed; refuses wrong numbers, and to go on after a divergence."""
        progress = jax.device_get(self._seed.state.progress)
        wrong, value = (episodes.pop(name, np.full((0, 1), np.nan)) for name in WRONG)
        for row, e in np.argwhere(~np.isnan(wrong)):
            numbers = np.zeros((self._num_envs, 1 + int(np.prod(self._seen))))
            numbers[e, int(wrong[row, e])] = value[row, e]
            step = int(progress.rows) - len(wrong) + int(row) + 1
            check_finite(numbers[:, 0], numbers[:, 1:], step, partial(place, self._seen))
        if progress.diverged_at >= 0:
            raise diverged(int(progress.diverged_at))
        ended = {name: x[~np.isnan(x)].tolist() for name, x in episodes.items()}
        self._episodes.add_episodes(ended)
        self.counters.episodes += len(ended.get("return", ()))
        self.counters.steps, self.counters.updates = int(progress.steps), int(progress.updates)
        self.counters.learning_since = int(progress.learning_since)


def _rest(state: TrainState) -> TrainState:
    """What a snapshot has besides the states of learner and actors."""
    return state._replace(learner=(), actors=())
