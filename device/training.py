"""Acting, storing, drawing and learning as one pure function of a state.

`E` denotes the environments that are stepped together, `R` time steps in one call.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType

from ..agents.base import Agent, LearnerState
from ..basics.prng_keys import is_key
from ..datatypes import ReplayConfig, rows_of
from ..environments import pure
from ..environments.pure import PureEnvironment
from ..networks.loops import within_loops
from ..replay.rows import sample_shapes
from ..replay.schedule import UpdateSchedule
from .learning import Learning, Progress, TrainState
from .replay import DeviceReplay

LARGEST_COUNT = 2**31 - 1  # steps and rows are counted in int32


class Training:
    """A run as pure functions of a `TrainState`.

    The order is that of `training`'s loop: a decision for every environment, their rows, a step of
    each, then the updates that are due. Priorities are set at once (there, a call later).

    Attributes:
      replay: the replay.
      metric_names: of what updates report.
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
        """Computes nothing yet.

        Args:
          agent: whose functions are used.
          environment: one of them.
          config: of the replay, and the pace.
          num_envs: E >= 1.
          episode_metrics: see `AgentEntry`.

        Raises:
          ValueError: the environment is not written in JAX, or the replay is not possible.
        """
        pure.check_pure(environment)
        spec = environment.spec
        self._agent, self._environment, self._config = agent, environment, config
        self._num_envs, self._episode_metrics = num_envs, episode_metrics
        self.replay = DeviceReplay(spec, agent.sequence, config, num_envs=num_envs)
        shapes = sample_shapes(spec, agent.sequence, config, num_envs=num_envs)
        self._learn = Learning(agent, self.replay, config, shapes[0])
        self.metric_names = sorted(self._learn.no_sums.metrics)

    def init(self, key: jax.Array) -> TrainState:
        """The first state: learner and actors begin as those of a run of this seed do."""
        agent, environment, num_envs = self._agent, self._environment, self._num_envs
        learner_key, actors_key = jax.random.split(key)
        environments_key, draw_key = jax.random.split(jax.random.fold_in(key, 2))
        begin = jax.vmap(agent.begin, (0, 0, None))
        ids = jnp.arange(num_envs, dtype=jnp.int32)
        zero = jnp.zeros((), jnp.int32)
        state = TrainState(
            learner=agent.init(learner_key),
            actors=begin(jax.random.split(actors_key, num_envs), ids, num_envs),
            environments=jax.vmap(functools.partial(pure.begin, environment))(
                pure.environment_keys(environments_key, num_envs)
            ),
            returns=jnp.zeros(num_envs, jnp.float32),
            replay=self.replay.init(),
            key=jax.random.key_data(draw_key),
            progress=Progress(zero, zero, zero, zero, zero - 1, zero - 1),
            sums=self._learn.no_sums,
        )
        # Some agents begin with weakly typed numbers, which a loop must not change.
        return jax.tree.map(
            lambda x: jax.lax.convert_element_type(x, x.dtype) if not is_key(x) else x, state
        )

    def advance(
        self, state: TrainState, calls: jax.Array, count: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """`count` time steps in every environment, each with the updates that are due after it.

        Args:
          state: before them.
          calls: int32 `[R, 2]`, R >= `count`: rows of `calls`.
          count: int32 `[]`.

        Returns:
          The next state, and of episodes that ended `return`, `length` and the agent's episode
          metrics, float32 `[R, E]`, NaN elsewhere. The metrics come with the decision on the last
          step, so one row later.
        """
        none = jnp.full((len(calls), self._num_envs), jnp.nan, jnp.float32)

        @within_loops()
        def step(index: jax.Array, carry: Any) -> Any:
            state, found = self._act(carry[0])
            episodes = {name: x.at[index].set(found[name]) for name, x in carry[1].items()}
            return self._learn(state, calls[index]), episodes

        episodes = dict.fromkeys(("return", "length", *self._episode_metrics), none)
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
        move = jax.vmap(functools.partial(pure.advance, self._environment))
        environments = move(state.environments, decision.action)
        returns = jnp.where(is_last, 0.0, state.returns + environments.timestep.reward)
        ends = environments.timestep.step_type == StepType.LAST
        metrics = {name: decision.extras[name] for name in self._episode_metrics}
        episodes = {
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


def make_train(
    agent: Agent,
    environment: PureEnvironment,
    config: ReplayConfig,
    *,
    num_envs: int,
    steps: int,
    episode_metrics: tuple[str, ...] = (),
) -> Callable[[jax.Array], tuple[LearnerState, dict[str, jax.Array]]]:
    """A whole run as one pure function of a PRNG key, to be jitted, and batched with `jax.vmap`.

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

    Raises:
      ValueError: see `Training`, or there are too many steps.
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
        return state.learner, {**episodes, **state.sums.means()}

    return train
