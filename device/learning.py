"""The state of a run on a device, and the updates that are due after a time step.

`E` denotes the environments that are stepped together, `R` time steps in one call.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..agents.base import Agent, LearnerState, Update, updates_in_one_call
from ..datatypes import ReplayConfig, Sample
from ..environments.pure import Running
from .replay import DeviceReplay, ReplayState


class Progress(NamedTuple):
    """What was counted so far; int32 `[]`.

    Attributes:
      steps: transitions in all environments.
      calls: calls of updates on replayed sequences.
      updates: all updates.
      learning_since: steps at which the first update became possible, -1 before.
      diverged_at: the first update whose priorities were not finite, -1 if there is none.
    """

    steps: jax.Array
    calls: jax.Array
    updates: jax.Array
    learning_since: jax.Array
    diverged_at: jax.Array


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
    """

    learner: LearnerState
    actors: Any
    environments: Running
    returns: jax.Array
    replay: ReplayState
    key: jax.Array
    progress: Progress


class Window(NamedTuple):
    """What one call of `Training.advance` adds to the metrics.

    Attributes:
      episodes: float32 `[R, E]` by name: `return`, `length` and the agent's episode metrics of
        episodes that ended, NaN elsewhere. The metrics come with the decision on the last step, so
        one row later.
      sums: float32 `[]` by name: sums over updates.
      updates: float32 `[]`, of these.
    """

    episodes: dict[str, jax.Array]
    sums: dict[str, jax.Array]
    updates: jax.Array


class Learning:
    """The updates that are due after a time step."""

    def __init__(self, agent: Agent, replay: DeviceReplay, config: ReplayConfig):
        self._update = updates_in_one_call(agent)
        self._replay, self._config = replay, config
        self._per_call = config.updates_per_call

    def sums(self, learner: LearnerState, sample: Sample) -> tuple[str, ...]:
        """Names of `Window.sums`, from the shapes of the learner's state and of a draw."""

        def update(state: LearnerState, sample: Sample) -> tuple[LearnerState, Update]:
            return self._update(state, sample, self._per_call)

        _, outputs = jax.eval_shape(update, learner, sample)
        return (*sorted(outputs.metrics), "replay_age")

    def __call__(
        self, state: TrainState, window: Window, calls: jax.Array
    ) -> tuple[TrainState, Window]:
        """The updates after a time step, whose row of `Training.advance`'s calls is `calls`."""
        if self._config.on_policy:
            newest = functools.partial(self._once, kind="newest", count=1)
            state, window = jax.lax.cond(calls[0] > 0, newest, lambda *x: x, state, window)
        replayed = functools.partial(self._once, kind="replayed", count=self._per_call)
        if self._config.pace == "rounds":
            if self._config.replay_ratio:
                state, window = jax.lax.fori_loop(
                    0, calls[1], lambda _, carry: replayed(*carry), (state, window)
                )
            return state, window
        state = self._begin_learning(state)
        return jax.lax.while_loop(
            lambda carry: self._is_due(carry[0].progress),
            lambda carry: replayed(*carry),
            (state, window),
        )

    def _begin_learning(self, state: TrainState) -> TrainState:
        """Notes the step at which there were enough rows, where the pace is steady."""
        progress, replay = state.progress, self._replay
        enough = replay.num_rows(state.replay) >= self._config.min_rows
        begins = enough & state.replay.present.any() & (progress.learning_since < 0)
        since = jnp.where(begins, progress.steps, progress.learning_since)
        return state._replace(progress=progress._replace(learning_since=since))

    def _is_due(self, progress: Progress) -> jax.Array:
        """As of `UpdateSchedule`: the acted steps pay for one more call."""
        acted = progress.steps - progress.learning_since
        wanted = (acted / self._config.acting_steps_per_update).astype(jnp.int32)
        due = wanted - progress.updates >= self._per_call
        return (progress.learning_since >= 0) & due

    def _once(
        self, state: TrainState, window: Window, *, kind: str, count: int
    ) -> tuple[TrainState, Window]:
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
        progress = progress._replace(
            updates=progress.updates + count,
            diverged_at=jnp.where(
                failed, progress.updates + 1 + jnp.argmin(finite), progress.diverged_at
            ).astype(jnp.int32),
        )
        age = jnp.mean(replay.ages(state.replay, slots).astype(jnp.float32))
        metrics: Mapping[str, jax.Array] = {**update.metrics, "replay_age": age}
        window = window._replace(
            sums={name: total + count * metrics[name] for name, total in window.sums.items()},
            updates=window.updates + count,
        )
        added = replay.set_priorities(state.replay, slots, update.priorities)
        return state._replace(learner=learner, replay=added, progress=progress), window
