"""An actor, and the loop of one process, without files: act, store, learn, in a fixed order.

With several actors, which may have parameters of their own, a loop is a program in one thread. `E`
denotes the environments of one actor.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType

from ..agents.base import Agent, LearnerState, Params
from ..agents.conformance import timestep_shape
from ..datatypes import Resumable, TimeStep, VectorEnvironment, rows_of
from ..environments.failures import close_quietly, one_sentence
from ..replay.interface import RowStore, Writer
from ..replay.local import LocalReplay
from .learner import (
    Counters,
    Learner,
    MetricsAccumulator,
    ParameterClient,
    Snapshot,
    copied,
    packing_of,
)
from .run_config import RunConfig

if TYPE_CHECKING:
    from .workers import WorkersInTurn


class RunningReturns:
    """Sums the rewards of running episodes: `sums`, which may be set, are returns and lengths."""

    def __init__(self, num_envs: int) -> None:
        self.sums: Sequence[np.ndarray] = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def add(self, timestep: TimeStep) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Adds time steps `[E, ...]`; the environments whose episodes ended, returns, lengths."""
        first = timestep.step_type == StepType.FIRST
        returns, lengths = self.sums
        returns = np.where(first, 0.0, returns + timestep.reward)
        lengths = np.where(first, 0, lengths + 1)
        self.sums = returns, lengths
        ended = np.flatnonzero(timestep.step_type == StepType.LAST)
        return ended, returns[ended], lengths[ended]


class Actor:
    """Steps E environments together: one jitted decision, one row for each, one step of each.

    `state`, the agent's actor states `[E, ...]`, may be set; the next step is given its buffers.
    """

    def __init__(
        self,
        agent: Agent,
        environment: VectorEnvironment,
        writer: Writer,
        parameters: Learner | ParameterClient,
        *,
        keys: jax.Array,
        first_id: int = 0,
        num_actors: int | None = None,
        episode_metrics: Sequence[str] = (),
    ):
        """Begins the actor states; the first step resets the environments, if nothing did before.

        There is a PRNG key for each of the E environments, which the actor owns. The newest
        `params` of the parameters are read at every step. `first_id` is the `actor_id` of the first
        environment among the run's `num_actors` (E if None). `episode_metrics`: see `AgentEntry`.
        """
        self._environment, self._writer, self._parameters = environment, writer, parameters
        self._client = None if isinstance(parameters, Learner) else parameters
        self._agent = agent
        # Donated, the states are updated in place: they may hold a whole episode.
        self._act = jax.jit(jax.vmap(agent.explore, in_axes=(None, 0, 0)), donate_argnums=1)
        # Jitted, each array has a buffer of its own, which donation requires.
        begin = jax.jit(jax.vmap(agent.begin, in_axes=(0, 0, None)), static_argnums=2)
        ids = first_id + np.arange(len(keys), dtype=np.int32)
        self.state = begin(keys, ids, num_actors or len(keys))
        self._episode_metrics = tuple(episode_metrics)
        self._episodes = MetricsAccumulator()
        self.is_stepping = False
        self._timestep: TimeStep | None = None  # the newest
        self._running = RunningReturns(environment.num_envs)

    @classmethod
    def of_run(
        cls,
        config: RunConfig,
        agent: Agent,
        environment: VectorEnvironment,
        index: int,
        writer: Writer,
        parameters: Learner | ParameterClient,
    ) -> "Actor":
        """Actor number `index` of a resolved run, with its share of the run's environments."""
        mine = config.environments_of(index)
        return cls(
            agent,
            environment,
            writer,
            parameters,
            keys=config.prng_keys()[1][mine.start : mine.stop],
            first_id=mine.start,
            num_actors=config.num_envs,
            episode_metrics=config.entry.episode_metrics,
        )

    def reset(self) -> None:
        """Starts a new episode in every environment; ValueError if one cannot be reset."""
        self.is_stepping = True
        with one_sentence("the environments cannot be reset"):
            self._timestep = self._environment.reset()
        self.is_stepping = False
        self._running = RunningReturns(self._environment.num_envs)

    def compile(self) -> None:
        """Compiles the decision before there are parameters; changes nothing."""
        like, state = packing_of(self._agent).like["params"], copied(self.state)
        params = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        num_envs, shapes = self._environment.num_envs, timestep_shape(self._environment.spec)
        timestep = jax.tree.map(lambda x: np.zeros((num_envs, *x.shape), x.dtype), shapes)
        for _ in range(2):  # a computed state may have another weak type than the first
            state = self._act(params, state, timestep).state

    def start(self) -> None:
        """Waits for the first parameters."""
        if self._client is not None:
            self._client.wait()

    def step(self) -> int:
        """One time step in every environment; transitions: none where an episode was at its end."""
        before = self._newest().step_type
        actions = self.decide()
        self.is_stepping = True
        timestep = self._environment.step(actions)
        self.is_stepping = False
        self.observe(timestep)
        self.update()
        return int(np.sum(before != StepType.LAST))

    def decide(self) -> np.ndarray:
        """Actions `[E, ...]` for the newest time steps, last ones too, whose rows it writes."""
        timestep = self._newest()
        decision = self._act(self._parameters.params, self.state, timestep)
        self.state = decision.state
        action, extras = jax.device_get((decision.action, decision.extras))
        priority = 1.0 if self._client is None else self._client.new_priority
        self._writer.write(rows_of(timestep, action, extras), priority)
        ended = np.asarray(timestep.step_type == StepType.LAST)
        metrics = {name: extras[name][ended].tolist() for name in self._episode_metrics}
        self._episodes.add_episodes(metrics)
        return np.asarray(action)

    def observe(self, timestep: TimeStep) -> None:
        """The time steps `[E, ...]` that follow a decision, or that begin episodes."""
        self._timestep = timestep
        _, returns, lengths = self._running.add(timestep)
        self._episodes.add_episodes({"return": returns.tolist(), "length": lengths.tolist()})

    def update(self) -> None:
        """Counts one time step, and may fetch newer parameters."""
        if self._client is not None:
            self._client.step()

    def running(self) -> dict[str, Any]:
        """The running episodes, for `restore_running`: plain data, not copied, or a ValueError."""
        environment = self._environment
        if not isinstance(environment, Resumable):
            raise ValueError(f"{type(environment).__name__} has no state that can be saved")
        return {
            "environment": environment.state(),
            "timestep": [np.array(x) for x in self._newest()],
            "sums": self._running.sums,
            "parameters": None if self._client is None else self._client.state(),
        }

    def restore_running(self, state: Mapping[str, Any]) -> None:
        """Continues the running episodes of another actor, as the environments do already."""
        self._timestep = TimeStep(*state["timestep"])
        self._running.sums = state["sums"]
        if self._client is not None:
            self._client.restore(state["parameters"])

    def _newest(self) -> TimeStep:
        if self._timestep is None:
            self.reset()
        assert self._timestep is not None
        return self._timestep

    def take_episodes(self) -> dict[str, list[float]]:
        """`return`, `length` and episode metrics of episodes that ended since the last call."""
        return self._episodes.take_episodes()

    def close(self) -> None:
        """Closes the writer and the environments."""
        self._writer.close()
        close_quietly(self._environment, has_failed=self.is_stepping)


class Tally:
    """What every loop counts, and its means of metrics; if it takes many steps, `until` so many."""

    def __init__(
        self, replays: Sequence[RowStore], metrics: MetricsAccumulator, names: Sequence[str]
    ):
        """Begins at 0 steps; `metrics` has the updates' since the last `flush`."""
        self.replays, self.metric_names = replays, names
        self.counters, self.until = Counters(), 0
        self._since = self._timed_since = Counters()
        self._episodes, self._metrics = MetricsAccumulator(), metrics
        self._acting_seconds = self._learning_seconds = 0.0
        self._is_advancing = False

    @property
    def is_consistent(self) -> bool:
        """Whether `snapshot` makes sense: between steps, and while an environment takes one."""
        return not self._is_advancing

    def doing(self) -> str:
        """What a stop has to wait for now, as the end of a sentence."""
        if self._is_advancing:
            return "decisions and updates to be computed"
        return "the evaluation or the snapshot"

    @property
    def flushed_at(self) -> int:
        """Steps at the last `flush`."""
        return self._since.steps

    @property
    def returns(self) -> Sequence[float]:
        """Returns of the episodes that ended since the last `flush`."""
        return self._episodes.returns

    def flush(self) -> tuple[dict[str, float], dict[str, float]]:
        """Means of metrics, and rates per second, since the last call."""
        steps = self.counters.steps - self._timed_since.steps
        updates = self.counters.updates - self._timed_since.updates
        clock = {
            "acting_steps_per_second": _rate(steps, self._acting_seconds),
            "learning_updates_per_second": _rate(updates, self._learning_seconds),
            "steps_per_second": _rate(steps, self._acting_seconds + self._learning_seconds),
        }
        self._since = self._timed_since = Counters(**vars(self.counters))
        self._acting_seconds = self._learning_seconds = 0.0
        return {**self._episodes.flush(), **self._metrics.flush()}, clock

    def open_metrics(self) -> list[Any]:
        """What was added to the metrics since the last `flush`, for `restore`; not copied."""
        return [vars(self._since), self._episodes.open, self._metrics.open]

    def _restore(self, counters: Mapping[str, Any], open_metrics: Sequence[Any] | None) -> None:
        self.counters = Counters(**counters)
        self._since = Counters(**counters)
        self._timed_since = self._since  # seconds are not restored
        if open_metrics is not None:
            since, self._episodes.open, self._metrics.open = open_metrics
            self._since = Counters(**since)


class Loop(Tally):
    """Actors and a learner, stepped in turn; deterministic for a seed."""

    def __init__(
        self,
        actors: Sequence[Actor],
        learner: "Learner | WorkersInTurn",
        replays: Sequence[LocalReplay],
        *,
        order: np.random.Generator | None = None,
    ):
        """Begins at 0 steps; `order` draws the order of the actors at each step, None keeps it."""
        super().__init__(replays, learner.metrics, learner.metric_names)
        self._actors, self.learner, self._order = list(actors), learner, order
        self._replays, self._is_started = replays, False

    @property
    def learner_state(self) -> LearnerState:
        """The learner state; its buffers may be donated to the next update."""
        return self.learner.state

    @property
    def params(self) -> Params:
        """The newest acting parameters."""
        return self.learner.params

    @property
    def is_consistent(self) -> bool:
        """See `Tally`."""
        return super().is_consistent or any(actor.is_stepping for actor in self._actors)

    def doing(self) -> str:
        """See `Tally`."""
        if any(actor.is_stepping for actor in self._actors):
            return f"the environments' step after {self.counters.steps} steps"
        return super().doing()

    def reset(self) -> None:
        """Starts a new episode in every environment, if one cannot wait for the first step."""
        for actor in self._actors:
            actor.reset()

    def start(self) -> None:
        """Gives the actors their first parameters, if they have none; `advance` does, too."""
        if not self._is_started:
            self._is_started = True
            self.learner.publish()
            for actor in self._actors:
                actor.start()

    def advance(self) -> None:
        """One time step in every environment, and all updates that are due after it."""
        started, self._is_advancing = time.perf_counter(), True
        self.start()
        self.act()
        acted = time.perf_counter()
        while self.learner.step():
            pass
        self._count_updates()
        learned = time.perf_counter()
        self._acting_seconds += acted - started
        self._learning_seconds += learned - acted
        self._is_advancing = False

    def act(self) -> None:
        """One time step in every environment; the learner is stepped by something else."""
        indices = range(len(self._actors))
        for index in indices if self._order is None else self._order.permutation(len(indices)):
            actor = self._actors[index]
            self.counters.steps += actor.step()
            episodes = actor.take_episodes()
            self.counters.episodes += len(episodes["return"])
            self._episodes.add_episodes(episodes)

    def take_episodes(self) -> dict[str, list[float]]:
        """As `Actor.take_episodes`: of the episodes that ended since the last call or `flush`."""
        return self._episodes.take_episodes()

    def snapshot(self) -> Snapshot:
        """Everything but the environments."""
        snapshot = self.learner.snapshot()
        self._count_updates()
        return snapshot._replace(counters=dict(vars(self.counters)), actors=self.actor_states())

    def actor_states(self) -> Any:
        """The states of all actors, `[num_envs, ...]`; valid until the next step."""
        states = [actor.state for actor in self._actors]
        return jax.tree.map(lambda *x: jnp.concatenate(x), *states)

    def open_metrics(self) -> list[Any]:
        """See `Tally`."""
        self.learner.finish()
        return super().open_metrics()

    def running(self) -> dict[str, Any]:
        """The running episodes, for `restore`: plain data, not copied; see `Actor.running`."""
        return {
            "actors": [actor.running() for actor in self._actors],
            "order": self._order,
            "learner": self.learner.running(),
        }

    def restore(
        self,
        snapshot: Snapshot,
        open_metrics: Sequence[Any] | None = None,
        running: Mapping[str, Any] | None = None,
    ) -> None:
        """Restores a snapshot, and what `open_metrics` and `running` returned at its moment.

        Without `running`, for which environments were restored, they begin new episodes.
        """
        self.learner.restore(snapshot)
        first = 0
        for actor in self._actors:
            count = len(jax.tree.leaves(actor.state)[0])
            mine = slice(first, first + count)
            actor.state = jax.tree.map(lambda x, mine=mine: x[mine].copy(), snapshot.actors)
            first += count
        self._restore(snapshot.counters, open_metrics)
        if running is None:
            for replay in self._replays:
                replay.cut()
            return
        for actor, state in zip(self._actors, running["actors"], strict=True):
            actor.restore_running(state)
        self._order = running["order"]
        self.learner.restore_running(running["learner"])
        self._is_started = self.counters.steps > 0  # before, actors have no parameters yet

    def close(self) -> None:
        """Closes actors and learner."""
        for actor in self._actors:
            actor.close()
        self.learner.close()

    def _count_updates(self) -> None:
        self.counters.updates = self.learner.updates
        self.counters.learning_since = self.learner.learning_since


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count and seconds else float("nan")
