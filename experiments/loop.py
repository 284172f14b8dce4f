"""The training loop in one process, without files: act, store, learn, in a fixed order.

`E` denotes the environments that are stepped together.
"""

import dataclasses
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType

from ..agents.base import Agent, Update, updates_in_one_call
from ..datatypes import ReplayConfig, Row, Sample
from ..environments import TimeStep, VectorEnvironment
from ..evaluation.episodes import RunningReturns
from ..replay.pacing import Due, Pacing
from ..replay.store import SequenceStore


@dataclasses.dataclass(kw_only=True)
class Counters:
    """How far a run has come.

    Attributes:
      steps: transitions taken in all environments.
      episodes: episodes ended.
      updates: updates of the learner.
      learning_since: steps at which learning began, -1 before.
    """

    steps: int = 0
    episodes: int = 0
    updates: int = 0
    learning_since: int = -1


class Window:
    """What happened since the last look: returns, metrics of updates, seconds spent on what."""

    def __init__(self) -> None:
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.extras: dict[str, list[float]] = {}  # those of `SequenceSpec.episode_extras`
        self.metrics: dict[str, float] = {}
        self.steps = 0
        self.updates = 0
        self.acting_seconds = 0.0
        self.learning_seconds = 0.0

    def add_updates(self, update: Update, count: int) -> None:
        """Adds the metrics of so many updates in one call (on the host)."""
        self.updates += count
        for name, value in update.metrics.items():
            self.metrics[name] = self.metrics.get(name, 0.0) + count * float(value)

    def means(self) -> dict[str, float]:
        """Means over the window: NaN where there was no episode; no entries without an update."""
        empty = float("nan")
        return {
            "episode_return": float(np.mean(self.returns)) if self.returns else empty,
            "episode_length": float(np.mean(self.lengths)) if self.lengths else empty,
            **{
                f"episode_{name}": float(np.mean(values)) if values else empty
                for name, values in self.extras.items()
            },
            **{name: total / self.updates for name, total in self.metrics.items()},
        }


class Loop:
    """Agent, environments and replay, stepped in turn; deterministic for a seed.

    Attributes:
      learner: the agent's `LearnerState`.
      actors: the agent's `ActorState`s, `[E, ...]`.
      counters: how far the run has come.
      window: what happened since `look` was called last.
    """

    def __init__(
        self,
        agent: Agent,
        environment: VectorEnvironment,
        store: SequenceStore,
        replay: ReplayConfig,
        *,
        seed: int,
    ):
        self._environment = environment
        self._store = store
        self._pacing = Pacing(replay, seed=seed)
        self._agent = agent
        # Donated, an actor's state is updated in place: it may hold a whole episode.
        self._act = jax.jit(jax.vmap(agent.explore, in_axes=(None, 0, 0)), donate_argnums=1)
        self._per_call = replay.updates_per_call
        update = updates_in_one_call(agent.update, self._per_call)
        self._update = jax.jit(update, donate_argnums=0)
        self._host = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside updates")
        learner_key, actor_key = jax.random.split(jax.random.key(seed))
        self.learner = jax.jit(agent.init)(learner_key)
        num_envs = environment.num_envs
        keys = jax.random.split(actor_key, num_envs)
        # Jitted, each array has a buffer of its own, as donation wants it.
        begin = jax.jit(jax.vmap(agent.begin, in_axes=(0, 0, None)), static_argnums=2)
        self.actors = begin(keys, jnp.arange(num_envs), num_envs)
        self.counters = Counters()
        self.window = Window()
        self._begin()

    def replay_state(self) -> dict[str, Any]:
        """What `restore` needs of the replay, a pytree of arrays."""
        return {**self._store.state(), "pacing": self._pacing.state()}

    def restore(
        self, learner: Any, actors: Any, counters: dict[str, int], replay: Any = None
    ) -> None:
        """Goes on from a snapshot; the environments begin new episodes.

        Args:
          learner: the agent's `LearnerState`.
          actors: its `ActorState`s, `[E, ...]`.
          counters: fields of `Counters`.
          replay: what `replay_state` gave; None leaves the rows as they are.
        """
        self.learner, self.actors = learner, actors
        self.counters = Counters(**counters)
        pacing = self._pacing.state() if replay is None else replay["pacing"]
        self._pacing.restore(pacing, counters)
        if replay is not None:
            self._store.restore(replay)
        self._store.cut()
        self._begin()

    def metric_names(self) -> list[str]:
        """Names of an update's metrics, and of an episode's extras, known before the first one."""
        sample, *_ = self._store.sample_shapes()
        return metric_names(self._agent, self.learner, sample)

    def look(self) -> Window:
        """What happened since the last call."""
        window, self.window = self.window, Window()
        return window

    def advance(self) -> None:
        """One time step in every environment, and the updates that are due after it."""
        started = time.perf_counter()
        self._step()
        acted = time.perf_counter()
        self._learn()
        self.window.acting_seconds += acted - started
        self.window.learning_seconds += time.perf_counter() - acted

    def _begin(self) -> None:
        self._timestep = self._environment.reset()
        self._running = RunningReturns(self._environment.num_envs)

    def _step(self) -> None:
        timestep = self._timestep
        decision = self._act(self._agent.acting_params(self.learner), self.actors, timestep)
        self.actors = decision.state
        action, extras = jax.device_get((decision.action, decision.extras))
        self._store.add(rows_of(timestep, action, extras))
        ended = np.asarray(timestep.step_type == StepType.LAST)
        for name in self._agent.sequence.episode_extras:
            self.window.extras.setdefault(name, []).extend(extras[name][ended].tolist())
        self._timestep = self._environment.step(action)
        self._count(timestep, self._timestep)

    def _count(self, before: TimeStep, after: TimeStep) -> None:
        taken = int(np.sum(before.step_type != StepType.LAST))
        self.counters.steps += taken
        self.window.steps += taken
        _, returns, lengths = self._running.add(after)
        self.counters.episodes += len(returns)
        self.window.returns.extend(returns.tolist())
        self.window.lengths.extend(lengths.tolist())

    def _due(self) -> Due | None:
        self._pacing.observe(
            steps=self.counters.steps,
            rows=self._store.num_rows,
            sequences=self._store.num_sequences,
            rounds=self._store.rounds,
        )
        self.counters.learning_since = self._pacing.learning_since
        return self._pacing.due

    def _learn(self) -> None:
        """All updates that are due: beside each call, the host does what does not depend on it.

        That is to take in the call before it and to draw the next batch, in a thread: on a CPU
        the call of an update returns when it is done. So a batch is drawn when the priorities of
        the batch before it are not known yet: they act one draw later. Nothing is ahead over an
        acting step, so snapshots need not know of it.
        """
        batch = self._draw()
        unfinished: tuple[np.ndarray, Update] | None = None
        while batch is not None:
            slots, sample = batch
            self._pacing.done()
            beside = self._beside(unfinished)
            self.learner, update = self._update(self.learner, sample)
            unfinished, batch = (slots, update), beside.result()
        if unfinished:
            self._finish(*unfinished)

    def _beside(self, unfinished: tuple[np.ndarray, Update] | None) -> Future[Any]:
        """Begins to take in a call of updates, and then to draw the next batch."""

        def work() -> tuple[np.ndarray, Sample] | None:
            if unfinished:
                self._finish(*unfinished)
            return self._draw()

        if unfinished or self._due():
            return self._host.submit(work)
        nothing: Future[Any] = Future()
        nothing.set_result(None)
        return nothing

    def _draw(self) -> tuple[np.ndarray, Sample] | None:
        """The batch of the call that is due, None if there is none."""
        due = self._due()
        if due is None:
            return None
        return self._store.newest() if due == "newest" else self._store.sample()

    def _finish(self, slots: np.ndarray, update: Update) -> None:
        """Waits for a call of updates, and takes in what it told."""
        update = jax.device_get(update)
        check_finite(update, self.counters.updates, self._per_call)
        self._store.set_priorities(slots, np.asarray(update.priorities))
        self.counters.updates += self._per_call
        self.window.add_updates(update, self._per_call)


def check_finite(update: Update, before: int, count: int) -> None:
    """Checks what a call of updates told.

    Args:
      update: on the host.
      before: updates before the call.
      count: updates in the call.

    Raises:
      FloatingPointError: a priority is not finite.
    """
    wrong = ~np.isfinite(update.priorities.reshape(count, -1)).all(axis=1)
    if wrong.any():
        raise FloatingPointError(
            f"Update {before + 1 + int(np.argmax(wrong))} gave priorities that are not finite: the "
            "learner diverged. Try a smaller learning rate."
        )


def metric_names(agent: Agent, learner: Any, sample: Any) -> list[str]:
    """Names of an update's metrics, and of an episode's extras, as `episode_NAME`.

    Args:
      agent: the agent.
      learner: its learner's state, or shapes like it.
      sample: of the replay, or shapes like it.
    """
    _, update = jax.eval_shape(agent.update, learner, sample)
    return [*(f"episode_{name}" for name in agent.sequence.episode_extras), *sorted(update.metrics)]


def rows_of(timestep: TimeStep, action: np.ndarray, extras: Any) -> Row:
    """Rows `[E, ...]` of time steps, and of what was decided on them."""
    return Row(
        observation=timestep.observation,
        reward=timestep.reward,
        discount=timestep.discount,
        is_first=timestep.step_type == StepType.FIRST,
        is_last=timestep.step_type == StepType.LAST,
        action=action,
        extras=extras,
    )
