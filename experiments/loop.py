"""The training loop in one process, without files: act, store, learn, in a fixed order.

`E` denotes the environments that are stepped together.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType

from ..agents.base import Agent, Update
from ..environments import TimeStep, VectorEnvironment
from ..replay.spec import ReplayConfig, Row
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
        self.metrics: dict[str, float] = {}
        self.steps = 0
        self.updates = 0
        self.acting_seconds = 0.0
        self.learning_seconds = 0.0

    def add_update(self, update: Update) -> None:
        """Adds the metrics of one update (on the host)."""
        self.updates += 1
        for name, value in update.metrics.items():
            self.metrics[name] = self.metrics.get(name, 0.0) + float(value)

    def means(self) -> dict[str, float]:
        """Means over the window: NaN where there was no episode; no entries without an update."""
        empty = float("nan")
        return {
            "episode_return": float(np.mean(self.returns)) if self.returns else empty,
            "episode_length": float(np.mean(self.lengths)) if self.lengths else empty,
            **{name: total / self.updates for name, total in self.metrics.items()},
        }


class Loop:
    """Agent, environments and replay, stepped in turn; deterministic for a seed.

    Attributes:
      learner: the agent's `LearnerState`.
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
        self._replay = replay
        self._agent = agent
        self._act = jax.jit(jax.vmap(agent.explore, in_axes=(None, 0, 0)))
        self._update = jax.jit(agent.update, donate_argnums=0)
        learner_key, self._actor_key = jax.random.split(jax.random.key(seed))
        self.learner = jax.jit(agent.init)(learner_key)
        self.counters = Counters()
        self.window = Window()
        self._begin()

    def restore(self, learner: Any, counters: dict[str, int]) -> None:
        """Goes on from a snapshot; its replay has been restored by the caller.

        The environments begin new episodes, so the actors begin anew too.
        """
        self.learner = learner
        self.counters = Counters(**counters)
        self._store.cut()
        self._begin()

    def metric_names(self) -> list[str]:
        """Names of an update's metrics, known before the first one."""
        _, update = jax.eval_shape(self._agent.update, self.learner, self._store.sample_shape())
        return sorted(update.metrics)

    def look(self) -> Window:
        """What happened since the last call."""
        window, self.window = self.window, Window()
        return window

    def advance(self) -> None:
        """One time step in every environment, and the updates that are due after it."""
        started = time.perf_counter()
        self._step()
        acted = time.perf_counter()
        self._learn(self._updates_due())
        self.window.acting_seconds += acted - started
        self.window.learning_seconds += time.perf_counter() - acted

    def _begin(self) -> None:
        num_envs = self._environment.num_envs
        keys = jax.random.split(jax.random.fold_in(self._actor_key, self.counters.steps), num_envs)
        begin = jax.vmap(self._agent.begin, in_axes=(0, 0, None))
        self._actors = begin(keys, jnp.arange(num_envs), num_envs)
        self._timestep = self._environment.reset()
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)

    def _step(self) -> None:
        timestep = self._timestep
        decision = self._act(self._agent.acting_params(self.learner), self._actors, timestep)
        self._actors = decision.state
        action, extras = jax.device_get((decision.action, decision.extras))
        self._store.add(_rows(timestep, action, extras))
        self._timestep = self._environment.step(action)
        self._count(timestep, self._timestep)

    def _count(self, before: TimeStep, after: TimeStep) -> None:
        taken = int(np.sum(before.step_type != StepType.LAST))
        self.counters.steps += taken
        self.window.steps += taken
        first, last = after.step_type == StepType.FIRST, after.step_type == StepType.LAST
        self._returns = np.where(first, 0.0, self._returns + after.reward)
        self._lengths = np.where(first, 0, self._lengths + 1)
        self.counters.episodes += int(last.sum())
        self.window.returns.extend(self._returns[last].tolist())
        self.window.lengths.extend(self._lengths[last].tolist())

    def _updates_due(self) -> int:
        counters = self.counters
        if counters.learning_since < 0:
            if self._store.num_rows < self._replay.min_rows or not self._store.num_sequences:
                return 0
            counters.learning_since = counters.steps
        acted = counters.steps - counters.learning_since
        return int(acted / self._replay.acting_steps_per_update) - counters.updates

    def _learn(self, updates: int) -> None:
        """Updates in a row: while the device works, the host draws the next batch.

        So a batch is drawn when the priorities of the batch before it are not known yet: they act
        one draw later. Nothing is ahead over an acting step, so snapshots need not know of it.
        """
        ahead = self._store.sample() if updates else None
        unfinished: tuple[np.ndarray, Update] | None = None
        for left in reversed(range(updates)):
            assert ahead is not None
            slots, sample = ahead
            self.learner, update = self._update(self.learner, sample)
            if unfinished:
                self._finish(*unfinished)
            unfinished = slots, update
            ahead = self._store.sample() if left else None
        if unfinished:
            self._finish(*unfinished)

    def _finish(self, slots: np.ndarray, update: Update) -> None:
        """Waits for an update, and takes in what it told."""
        update = jax.device_get(update)
        if not np.isfinite(update.priorities).all():
            raise FloatingPointError(
                f"Update {self.counters.updates + 1} gave priorities that are not finite: the "
                "learner diverged. Try a smaller learning rate."
            )
        self._store.set_priorities(slots, np.asarray(update.priorities))
        self.counters.updates += 1
        self.window.add_update(update)


def _rows(timestep: TimeStep, action: np.ndarray, extras: Any) -> Row:
    return Row(
        observation=timestep.observation,
        reward=timestep.reward,
        discount=timestep.discount,
        is_first=timestep.step_type == StepType.FIRST,
        is_last=timestep.step_type == StepType.LAST,
        action=action,
        extras=extras,
    )
