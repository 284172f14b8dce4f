"""Acting, storing, drawing and learning as one pure function of a state.

`E` denotes the environments that are stepped together, `R` time steps in one call.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType

from ..agents.base import Agent, LearnerState, updates_in_one_call
from ..basics.prng_keys import is_key
from ..datatypes import ReplayConfig, TimeStep, rows_of
from ..environments import pure
from ..environments.pure import PureEnvironment, Running
from ..networks.base import within_loops
from ..replay.rows import sample_shapes
from ..replay.schedule import UpdateSchedule
from .replay import DeviceReplay, ReplayState

# The place of the first number that is not finite, the reward before the observation's; the number.
WRONG = "!wrong", "!value"  # no names of metrics
LARGEST_COUNT = 2**31 - 1  # steps and rows are counted in int32


class Progress(NamedTuple):
    """Counts so far; int32 `[]`."""

    rows: jax.Array  # time steps of every environment
    steps: jax.Array  # transitions in all environments
    calls: jax.Array  # of updates on replayed sequences
    updates: jax.Array
    learning_since: jax.Array  # steps at which the first update became possible, -1 before
    diverged_at: jax.Array  # the first update whose priorities were not finite, -1 if there is none


class Sums(NamedTuple):
    """Sums over updates, which do not depend on how the run is divided into calls; float32 `[]`."""

    metrics: dict[str, jax.Array]
    updates: jax.Array

    def means(self) -> dict[str, jax.Array]:
        """The means, 0 where there was no update."""
        return {name: x / jnp.maximum(self.updates, 1) for name, x in self.metrics.items()}


class TrainState(NamedTuple):
    """One moment of a run."""

    learner: LearnerState
    actors: Any  # the agent's actor states, `[E, ...]`
    environments: Running  # `[E, ...]`
    returns: jax.Array  # float32 `[E]`, sums of the running episodes' rewards
    replay: ReplayState
    key: jax.Array  # of the draws
    progress: Progress
    sums: Sums  # of metrics of updates, since they were last set to 0


class Training:
    """A run as pure functions of a `TrainState`.

    The order is the same as in `training`'s loop: a decision for every environment, their rows,
    a step of each, then the updates that are due. Priorities are set at once (there, a call later).
    """

    def __init__(
        self,
        agent: Agent,
        environment: PureEnvironment,
        config: ReplayConfig,
        *,
        num_envs: int,
        episode_metrics: tuple[str, ...] = (),
    ):
        """Computes nothing yet; see `make_train` for the arguments."""
        pure.check_pure(environment)
        self.spec = spec = environment.spec
        self._agent, self._environment, self._config = agent, environment, config
        self._num_envs, self._episode_metrics = num_envs, episode_metrics
        self.replay = DeviceReplay(spec, agent.sequence, config, num_envs=num_envs)
        self._update = updates_in_one_call(agent)
        sample = sample_shapes(spec, agent.sequence, config, num_envs=num_envs)[0]
        learner = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
        _, outputs = jax.eval_shape(
            lambda x, y: self._update(x, y, config.updates_per_call), learner, sample
        )
        self.metric_names = sorted([*outputs.metrics, "replay_age"])

    def init(self, key: jax.Array) -> TrainState:
        """The first state: learner and actors begin as in a run of this seed."""
        agent, environment, num_envs = self._agent, self._environment, self._num_envs
        learner_key, actors_key = jax.random.split(key)
        environments_key, draw_key = jax.random.split(jax.random.fold_in(key, 2))
        begin = jax.vmap(agent.begin, (0, 0, None))
        ids = jnp.arange(num_envs, dtype=jnp.int32)
        zero = jnp.zeros((), jnp.int32)
        state = TrainState(
            learner=agent.init(learner_key),
            actors=begin(jax.random.split(actors_key, num_envs), ids, num_envs),
            environments=pure.begin(environment, pure.environment_keys(environments_key, num_envs)),
            returns=jnp.zeros(num_envs, jnp.float32),
            replay=self.replay.init(),
            key=jax.random.key_data(draw_key),
            progress=Progress(zero, zero, zero, zero, zero - 1, zero - 1),
            sums=Sums(dict.fromkeys(self.metric_names, jnp.float32(0)), jnp.float32(0)),
        )
        # Some agents begin with weakly typed numbers, which a loop must not change.
        return jax.tree.map(
            lambda x: jax.lax.convert_element_type(x, x.dtype) if not is_key(x) else x, state
        )

    def advance(
        self, state: TrainState, calls: jax.Array, count: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """`count` time steps in every environment, each with the updates that are due after it.

        `calls` are int32 `[R, 2]`, R >= `count`: rows of `calls`. With the next state come `WRONG`,
        and of episodes that ended `return`, `length` and the agent's episode metrics, float32
        `[R, E]`, NaN elsewhere; the metrics are of the decision on the last step, a row later.
        """
        none = jnp.full((len(calls), self._num_envs), jnp.nan, jnp.float32)

        @within_loops()
        def step(index: jax.Array, carry: Any) -> Any:
            state, found = self._act(carry[0])
            episodes = {name: x.at[index].set(found[name]) for name, x in carry[1].items()}
            return self._learn(state, calls[index]), episodes

        episodes = dict.fromkeys(("return", "length", *WRONG, *self._episode_metrics), none)
        ended: tuple[TrainState, Any] = jax.lax.fori_loop(0, count, step, (state, episodes))
        return ended

    def calls(self) -> Iterator[tuple[int, int]]:
        """Rows for `advance`: calls of updates on newest sequences (0 or 1) and on replayed ones.

        The latter are ignored where the pace is steady: the steps decide. The schedule knows
        nothing of the data, and has the same random numbers for every seed, so that seeds can be
        batched.
        """
        sequence, config, num_envs = self._agent.sequence, self._config, self._num_envs
        schedule = UpdateSchedule(config, num_envs=num_envs, seed=0)
        for row in itertools.count(1):
            calls = {"newest": 0, "replayed": 0}
            rounds, incomplete = divmod(row - sequence.length + sequence.period, sequence.period)
            if config.pace == "rounds" and rounds > 0 and not incomplete:
                kept = min(row * num_envs, self.replay.capacity)
                schedule.observe(steps=0, rows=kept, sequences=rounds * num_envs, rounds=rounds)
                while kind := schedule.due:
                    calls[kind] += 1
                    schedule.done()
            yield calls["newest"], calls["replayed"]

    def _act(self, state: TrainState) -> tuple[TrainState, dict[str, jax.Array]]:
        """One time step in every environment: the next state, and a row of the episodes."""
        agent, before, progress = self._agent, state.environments.timestep, state.progress
        is_last = before.step_type == StepType.LAST
        params = agent.acting_params(state.learner)
        decision = jax.vmap(agent.explore, (None, 0, 0))(params, state.actors, before)
        rows = rows_of(before, decision.action, decision.extras)
        environments = pure.advance(self._environment, state.environments, decision.action)
        returns = jnp.where(is_last, 0.0, state.returns + environments.timestep.reward)
        ends = environments.timestep.step_type == StepType.LAST
        metrics = {name: decision.extras[name] for name in self._episode_metrics}
        episodes = {
            **dict(zip(WRONG, jax.vmap(_not_finite)(before), strict=True)),
            "return": jnp.where(ends, returns, jnp.nan),
            "length": jnp.where(ends, environments.length, jnp.nan),
            **{name: jnp.where(is_last, x, jnp.nan) for name, x in metrics.items()},
        }
        steps = progress.steps + jnp.sum(~is_last, dtype=jnp.int32)
        state = state._replace(
            actors=decision.state,
            environments=environments,
            returns=returns,
            replay=self.replay.add(state.replay, rows),
            progress=progress._replace(rows=progress.rows + 1, steps=steps),
        )
        return state, episodes

    def _learn(self, state: TrainState, calls: jax.Array) -> TrainState:
        """The updates after a time step, whose row of `advance`'s calls is `calls`."""
        if self._config.on_policy:
            newest = functools.partial(self._once, kind="newest", count=1)
            state = jax.lax.cond(calls[0] > 0, newest, lambda state: state, state)
        count = self._config.updates_per_call
        replayed = functools.partial(self._once, kind="replayed", count=count)
        if self._config.pace == "rounds":
            if self._config.replay_ratio:
                state = jax.lax.fori_loop(0, calls[1], lambda _, state: replayed(state), state)
            return state
        state = self._begin_learning(state)
        return jax.lax.while_loop(lambda state: self._is_due(state.progress), replayed, state)

    def _begin_learning(self, state: TrainState) -> TrainState:
        """Notes the step at which there were enough rows, where the pace is steady."""
        progress, replay = state.progress, self.replay
        enough = replay.num_rows(state.replay) >= self._config.min_rows
        begins = enough & state.replay.present.any() & (progress.learning_since < 0)
        since = jnp.where(begins, progress.steps, progress.learning_since)
        return state._replace(progress=progress._replace(learning_since=since))

    def _is_due(self, progress: Progress) -> jax.Array:
        """See `UpdateSchedule`: the acted steps pay for one more call."""
        acted = progress.steps - progress.learning_since
        wanted = (acted / self._config.acting_steps_per_update).astype(jnp.int32)
        due = wanted - progress.updates >= self._config.updates_per_call
        return (progress.learning_since >= 0) & due

    def _once(self, state: TrainState, *, kind: str, count: int) -> TrainState:
        """One call of updates."""
        replay, progress = self.replay, state.progress
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
        first = progress.updates + 1 + jnp.argmin(finite).astype(jnp.int32)
        progress = progress._replace(
            updates=progress.updates + count,
            diverged_at=jnp.where(failed, first, progress.diverged_at),
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


def _not_finite(timestep: TimeStep) -> tuple[jax.Array, jax.Array]:
    """`WRONG` of a time step; NaN and any number if all are finite."""
    numbers, seen = jnp.ravel(timestep.reward), timestep.observation
    if seen.dtype != jnp.uint8:
        numbers = jnp.concatenate([numbers, jnp.ravel(seen)])
    wrong = ~jnp.isfinite(numbers)
    first = jnp.argmax(wrong)
    return jnp.where(wrong.any(), first, jnp.nan), numbers[first]


def make_train(
    agent: Agent,
    environment: PureEnvironment,
    config: ReplayConfig,
    *,
    num_envs: int,
    steps: int,
    episode_metrics: tuple[str, ...] = (),
) -> Callable[[jax.Array], tuple[LearnerState, dict[str, jax.Array]]]:
    """A whole run as a pure function of a key (JAX's default kind), for `jax.jit` and `jax.vmap`.

    Args:
      agent: whose functions are used.
      environment: one of them.
      config: of the replay, and the pace.
      num_envs: E >= 1.
      steps: time steps over all environments, the first one of each episode included; rounded up.
      episode_metrics: see `AgentEntry`.

    Returns:
      From a key to the learner's last state and the metrics: `return`, `length` and the agent's
      episode metrics `[ceil(steps / E), E]`, NaN where no episode ended; and the means over all
      updates of what they report, `[]`.
    """
    if not 1 <= steps <= LARGEST_COUNT:
        raise ValueError(f"steps must be from 1 to {LARGEST_COUNT}, got {steps}.")
    training = Training(
        agent, environment, config, num_envs=num_envs, episode_metrics=episode_metrics
    )
    rows = training.calls()
    calls = np.array([next(rows) for _ in range(-(-steps // num_envs))], np.int32)

    def train(key: jax.Array) -> tuple[LearnerState, dict[str, jax.Array]]:
        count = jnp.int32(len(calls))
        state, episodes = training.advance(training.init(key), jnp.asarray(calls), count)
        for name in WRONG:
            del episodes[name]
        return state.learner, {**episodes, **state.sums.means()}

    return train
