"""The loops of runs on a device: many time steps in one compiled call, snapshots between them."""

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.base import Agent, LearnerState, Params
from ..basics.machine import check_memory
from ..datatypes import EnvironmentSpec, TimeStep, VectorEnvironment
from ..environments.arrival import check_finite
from ..environments.observations import place
from ..environments.pure import PureVector, leaves_of, with_leaves
from ..replay.rows import check_stored_as, stored_as
from ..training.learner import MetricsAccumulator, Snapshot, copied, diverged
from ..training.loop import Tally
from ..training.run_config import RunConfig
from .replay import DeviceReplay
from .training import LARGEST_COUNT, WRONG, Progress, Training, TrainState

_MAX_ROWS = 1024  # time steps of every environment in one call
_FIRST_ROWS = 16
_SECONDS = 0.25  # that all calls of `Together.compute` should take: a stop waits for them


def make_loops(
    configs: Sequence[RunConfig], agent: Agent, environments: Sequence[VectorEnvironment]
) -> list["DeviceLoop"]:
    """The loops of resolved runs that differ in their seeds alone; steps one pure environment."""
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
    together = Together(training)
    for each, device in zip(configs, jax.local_devices() * len(configs), strict=False):
        together.loops.append(DeviceLoop(each, agent, training, together, device))
    return together.loops


def check_seeds(config: RunConfig, agent: Agent, spec: EnvironmentSpec, count: int) -> None:
    """Refuses (ValueError) replays of so many seeds that are larger than the memory."""
    replay = DeviceReplay(spec, agent.sequence, config.replay, num_envs=config.num_envs)
    what = f"A replay of {replay.capacity} rows{f' for each of {count} seeds' * (count > 1)}"
    check_memory(what, count * replay.nbytes, replay.capacity, available=memory())


class DeviceLoop(Tally):
    """A loop whose `state` is on the device, environments too: a resumed run continues exactly."""

    def __init__(
        self,
        config: RunConfig,
        agent: Agent,
        training: Training,
        together: "Together",
        device: jax.Device,
    ):
        """Begins the run of one seed."""
        super().__init__([training.replay], MetricsAccumulator(), training.metric_names)
        self._config, self._num_envs = config.replay, config.num_envs
        self._agent, self._together, self.device = agent, together, device
        self._seen = training.spec.observations.shape
        self.state = jax.device_put(together.init(jax.random.key(config.seed)), device)
        self.rows = 0  # time steps of every environment so far
        self.allowed = 0  # time steps that it may take now; 0 once the run has ended
        self.found: Any = None  # of the newest call, if any: as `_take` has it
        self.took = 0.0  # seconds of `Together.compute`

    @property
    def learner_state(self) -> LearnerState:
        """See `Loop`."""
        return self.state.learner

    @property
    def params(self) -> Params:
        """See `Loop`."""
        return self._agent.acting_params(self.state.learner)

    def actor_states(self) -> Any:
        """See `Loop`."""
        return self.state.actors

    def advance(self) -> None:
        """Time steps, with the updates due after each, up to and over `until`; none if ahead."""
        self._is_advancing = True
        if self.found is None and not self.took:
            for loop in self._together.loops:
                if loop.until or loop is self:  # those that have ended take no more steps
                    loop.allowed = max(1, (loop.until - loop.counters.steps) // self._num_envs)
            self._together.compute()
        # One call does both: the rates of acting and learning are of the same seconds.
        self._acting_seconds = self._learning_seconds = self._acting_seconds + self.took
        found, self.found, self.took, self.until = self.found, None, 0.0, 0
        if found:
            self._take(*found)  # one that fails is not computed further
        self._is_advancing = False

    def flush(self) -> tuple[dict[str, float], dict[str, float]]:
        """Means of metrics, and rates per second of calls, since the last call."""
        sums = jax.device_get(self.state.sums)
        if sums.updates:
            self._metrics.add(jax.device_get(sums.means()), int(sums.updates))
            zeros = jax.tree.map(jnp.zeros_like, self.state.sums)
            self.state = self.state._replace(sums=zeros)
        means, clock = super().flush()
        return means, {**clock, "steps_per_second": clock["acting_steps_per_second"]}

    def open_metrics(self) -> list[Any]:
        """See `Tally`; the sums of the state are with them."""
        return [*super().open_metrics(), [np.array(x) for x in leaves_of(self.state.sums)]]

    def running(self) -> dict[str, Any]:
        """Nothing: the environments are in `Snapshot.replay`."""
        return {}

    def snapshot(self) -> Snapshot:
        """Everything."""
        state = self.state
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
        found, before = snapshot.replay, _rest(self.state)
        check_stored_as(found, self._agent.sequence, self._config)
        leaves = [found[str(i)] for i in range(len(jax.tree.leaves(before)))]
        state: TrainState = with_leaves(before, leaves)
        state = state._replace(learner=copied(snapshot.learner), actors=copied(snapshot.actors))
        *rest, sums = open_metrics or [None]
        self._restore(snapshot.counters, rest or None)
        if sums is not None:  # those in the snapshot may have been written into a row already
            state = state._replace(sums=with_leaves(state.sums, sums))
        self.state = jax.device_put(state, self.device)
        self.rows = int(state.progress.rows)

    def close(self) -> None:
        """Does nothing: there are no threads, and environments are part of the state."""

    def _take(self, episodes: dict[str, np.ndarray], progress: Progress, newest: TimeStep) -> None:
        """Counts what was computed; refuses wrong numbers, and to go on after a divergence."""
        wrong, value = (episodes.pop(name) for name in WRONG)
        name = functools.partial(place, self._seen)
        for row, e in np.argwhere(~np.isnan(wrong)):
            numbers = np.zeros((self._num_envs, 1 + int(np.prod(self._seen))))
            numbers[e, int(wrong[row, e])] = value[row, e]
            step = int(progress.rows) - len(wrong) + int(row)
            check_finite(numbers[:, 0], numbers[:, 1:], step, name)
        check_finite(newest.reward, newest.observation, int(progress.rows), name)
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


class Together:
    """Runs in step with each other, spread over the devices of this process.

    On an accelerator, all its runs are one call of `jax.vmap`. On CPUs, where a batch gains
    nothing, each is a call of its own.
    """

    def __init__(self, training: Training):
        """Has no `loops` yet."""
        self.loops: list[DeviceLoop] = []
        self.init = jax.jit(training.init)
        self._advance = jax.jit(functools.partial(_advance, training), donate_argnums=0)
        self._calls = training.calls
        self._schedule, self._at = self._calls(), 0
        self._rows = _FIRST_ROWS

    def compute(self) -> None:
        """Time steps of those runs that have taken the fewest, as many as all of them may."""
        started = time.perf_counter()
        waiting = [loop for loop in self.loops if loop.allowed]
        rows = min(loop.rows for loop in waiting)
        gaps = [loop.rows - rows or loop.allowed for loop in waiting]  # resumed ones may be ahead
        count = min(self._rows, *gaps)
        calls = np.zeros((_MAX_ROWS, 2), np.int32)
        calls[:count] = list(self._scheduled(rows, count))
        behind = [loop for loop in self.loops if loop.rows == rows and (loop.allowed or _batches())]
        for group in _groups(behind):
            states = [loop.state for loop in group]
            states, found = self._advance(states, calls, jnp.int32(count))
            for loop, state, episodes in zip(group, states, found, strict=True):
                loop.state = state
                loop.found = episodes, state.progress, state.environments.timestep
        fetched = jax.device_get([loop.found for loop in behind])  # all in one transfer
        for loop, (episodes, *newest) in zip(behind, fetched, strict=True):
            loop.found = {name: x[:count] for name, x in episodes.items()}, *newest
            loop.rows += count
        elapsed = time.perf_counter() - started
        if elapsed > 2 * _SECONDS:
            self._rows = max(1, self._rows // 2)
        elif elapsed < _SECONDS and count == self._rows:
            self._rows = min(_MAX_ROWS, 2 * self._rows)
        for loop in waiting:
            loop.allowed, loop.took = 0, elapsed

    def _scheduled(self, rows: int, count: int) -> Iterator[tuple[int, int]]:
        """The calls of updates after the time steps that follow the first `rows`."""
        if rows < self._at:
            self._schedule, self._at = self._calls(), 0
        while self._at < rows + count:
            calls, self._at = next(self._schedule), self._at + 1
            if self._at > rows:
                yield calls


def memory() -> float | None:
    """Bytes that the replays may take on all devices; None where that is the machine's memory."""
    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(limits) / 2 or None  # in a call of several runs, their states exist twice


def _batches() -> bool:
    return jax.default_backend() != "cpu"


def _groups(loops: Sequence[DeviceLoop]) -> list[list[DeviceLoop]]:
    if not _batches():
        return [[loop] for loop in loops]
    devices = dict.fromkeys(loop.device for loop in loops)
    return [[loop for loop in loops if loop.device == device] for device in devices]


def _advance(
    training: Training, states: list[TrainState], calls: jax.Array, count: jax.Array
) -> tuple[list[TrainState], list[dict[str, jax.Array]]]:
    if len(states) == 1:
        state, episodes = training.advance(states[0], calls, count)
        return [state], [episodes]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)
    found: Any = jax.vmap(training.advance, (0, None, None))(stacked, calls, count)
    each = [jax.tree.map(lambda x, k=k: x[k], found) for k in range(len(states))]
    return [state for state, _ in each], [episodes for _, episodes in each]
