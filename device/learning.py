"""The state of a run on a device, and the updates that are due after a time step.

`E` denotes the environments that are stepped together.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..agents.base import Agent, LearnerState, updates_in_one_call
from ..datatypes import ReplayConfig, Sample
from ..environments.pure import Running
from .replay import DeviceReplay, ReplayState


class Progress(NamedTuple):
    """What was counted so far; int32 `[]`.

    Attributes:
      rows: time steps of every environment.
      steps: transitions in all environments.
      calls: calls of updates on replayed sequences.
      updates: all updates.
      learning_since: steps at which the first update became possible, -1 before.
      diverged_at: the first update whose priorities were not finite, -1 if there is none.
    """

    rows: jax.Array
    steps: jax.Array
    calls: jax.Array
    updates: jax.Array
    learning_since: jax.Array
    diverged_at: jax.Array


class Sums(NamedTuple):
    """Sums over updates, which do not depend on how the run is divided into calls.

    Attributes:
      metrics: float32 `[]` by name.
      updates: float32 `[]`, how many.
    """

    metrics: dict[str, jax.Array]
    updates: jax.Array

    def means(self) -> dict[str, jax.Array]:
        """The means, 0 where there was no update."""
        return {name: x / jnp.maximum(self.updates, 1) for name, x in self.metrics.items()}


class TrainState(NamedTuple):
    """One moment of a run.

    Attributes:
      learner: the agent's `LearnerState`.
      actors: its actor states, `[E, ...]`.
      environments: `Running` environments, `[E, ...]`.
      returns: float32 `[E]`, sums of the running episodes' rewards.
      replay: rows.
      key: of the draws.
      progress: counts.
      sums: of what updates report, since they were last set to 0.
    """

    learner: LearnerState
    actors: Any
    environments: Running
    returns: jax.Array
    replay: ReplayState
    key: jax.Array
    progress: Progress
    sums: Sums


class Learning:
    """The updates that are due after a time step.

    Attributes:
      no_sums: with which `TrainState.sums` begins.
    """

    def __init__(self, agent: Agent, replay: DeviceReplay, config: ReplayConfig, sample: Sample):
        """Takes the shapes of a draw, too; computes nothing."""
        self._update = updates_in_one_call(agent)
        self._replay, self._config = replay, config
        self._per_call = config.updates_per_call
        learner = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
        _, outputs = jax.eval_shape(
            lambda x, y: self._update(x, y, self._per_call), learner, sample
        )
        zero = jnp.zeros((), jnp.float32)
        self.no_sums = Sums(dict.fromkeys([*sorted(outputs.metrics), "replay_age"], zero), zero)

    def __call__(self, state: TrainState, calls: jax.Array) -> TrainState:
        """The updates after a time step, whose row of `Training.advance`'s calls is `calls`."""
        if self._config.on_policy:
            newest = functools.partial(self._once, kind="newest", count=1)
            state = jax.lax.cond(calls[0] > 0, newest, lambda state: state, state)
        replayed = functools.partial(self._once, kind="replayed", count=self._per_call)
        if self._config.pace == "rounds":
            if self._config.replay_ratio:
                state = jax.lax.fori_loop(0, calls[1], lambda _, state: replayed(state), state)
            return state
        state = self._begin_learning(state)
        return jax.lax.while_loop(lambda state: self._is_due(state.progress), replayed, state)

    def _begin_learning(self, state: TrainState) -> TrainState:
        """Notes the step at which there were enough rows, where the pace is steady."""
        progress, replay = state.progress, self._replay
        enough = replay.num_rows(state.replay) >= self._config.min_rows
        begins = enough & state.replay.present.any() & (progress.learning_since < 0)
        since = jnp.where(begins, progress.steps, progress.learning_since)
        return state._replace(progress=progress._replace(learning_since=since))

    def _is_due(self, progress: Progress) -> jax.Array:
        """See `UpdateSchedule`: the acted steps pay for one more call."""
        acted = progress.steps - progress.learning_since
        wanted = (acted / self._config.acting_steps_per_update).astype(jnp.int32)
        due = wanted - progress.updates >= self._per_call
        return (progress.learning_since >= 0) & due

    def _once(self, state: TrainState, *, kind: str, count: int) -> TrainState:
        """One call of updates."""
        replay, progress = self._replay, state.progress
        if kind == "newest":
            slots, sample = replay.newest(state.replay)
        else:
            key = jax.random.fold_in(jax.random.wrap_key_data(state.key), progress.calls)
            slots, sample = replay.sample(state.replay, key)
            progress = progress._replace(calls=progress.calls + 1)
        learner, update = self._update(state.learner, sample, count)
        finite = jnp.isfinite(update.priorities.reshape(count, -1)).all(axis=1)
        failed = (progress.diverged_at < 0) & ~finite.all()
        since = jnp.where(progress.updates == 0, progress.steps, progress.learning_since)
        if self._config.pace == "rounds":
            progress = progress._replace(learning_since=since)
        progress = progress._replace(
            updates=progress.updates + count,
            diverged_at=jnp.where(
                failed, progress.updates + 1 + jnp.argmin(finite), progress.diverged_at
            ).astype(jnp.int32),
        )
        age = jnp.mean(replay.ages(state.replay, slots).astype(jnp.float32))
        metrics: Mapping[str, jax.Array] = {**update.metrics, "replay_age": age}
        totals = state.sums.metrics.items()
        added = {name: total + count * metrics[name] for name, total in totals}
        return state._replace(
            learner=learner,
            replay=replay.set_priorities(state.replay, slots, update.priorities),
            progress=progress,
            sums=Sums(added, state.sums.updates + count),
        )
