"""Acting, storing, drawing and learning as one pure function of a state.

`E` denotes the environments that are stepped together, `R` time steps in one call.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
from .learning import Learning, Progress, Sums, TrainState
from .replay import DeviceReplay

LARGEST_COUNT = 2**31 - 1  # steps and rows are counted in int32


class Training(NamedTuple):
    """A run as pure functions.

    Attributes:
      init: `key -> TrainState`. Learner and actors begin as those of a run of this seed do.
      advance: `(TrainState, calls, count) -> (TrainState, episodes)`: `count` time steps in every
        environment, at most the R rows of `calls`, int32 `[R, 2]`: updates on the newest sequences
        (0 or 1) after each, and calls of updates on replayed ones. The latter column is ignored
        where the pace is steady: the steps decide. Of episodes that ended, `return`, `length` and
        the agent's episode metrics, float32 `[R, E]`, NaN elsewhere. The metrics come with the
        decision on the last step, so one row later.
      calls: an iterator of these rows, the schedule of the run: it knows nothing of the data, and
        has the same random numbers for every seed, so that seeds can be batched.
      replay: the replay.
      no_sums: with which `TrainState.sums` begins.
    """

    init: Callable[[jax.Array], TrainState]
    advance: Callable[[TrainState, jax.Array, jax.Array], tuple[TrainState, dict[str, jax.Array]]]
    calls: Callable[[], Iterator[tuple[int, int]]]
    replay: DeviceReplay
    no_sums: Sums


def make_training(
    agent: Agent,
    environment: PureEnvironment,
    config: ReplayConfig,
    *,
    num_envs: int,
    episode_metrics: tuple[str, ...] = (),
) -> Training:
    """The functions of a run; nothing is computed yet.

    The order is that of `runtime`'s loop: a decision for every environment, their rows, a step of
    each, then the updates that are due. Priorities are set at once (there, a call later).

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
    replay = DeviceReplay(environment.spec, agent.sequence, config, num_envs=num_envs)
    learn = Learning(agent, replay, config)
    shapes = sample_shapes(environment.spec, agent.sequence, config, num_envs=num_envs)
    learner = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
    no_sums = learn.no_sums(learner, shapes[0])

    def advance(
        state: TrainState, calls: jax.Array, count: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        none = jnp.full((len(calls), num_envs), jnp.nan, jnp.float32)

        @within_loops()
        def step(index: jax.Array, carry: Any) -> Any:
            state, found = _act(agent, environment, replay, carry[0], episode_metrics)
            episodes = {name: x.at[index].set(found[name]) for name, x in carry[1].items()}
            return learn(state, calls[index]), episodes

        episodes = dict.fromkeys(("return", "length", *episode_metrics), none)
        ended: tuple[TrainState, Any] = jax.lax.fori_loop(0, count, step, (state, episodes))
        return ended

    return Training(
        init=functools.partial(_init, agent, environment, replay, num_envs, no_sums),
        advance=advance,
        calls=functools.partial(_calls, agent, replay, config, num_envs),
        replay=replay,
        no_sums=no_sums,
    )


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
      ValueError: see `make_training`, or there are too many steps.
    """
    if not 1 <= steps <= LARGEST_COUNT:
        raise ValueError(f"steps must be from 1 to {LARGEST_COUNT}, got {steps}.")
    training = make_training(
        agent, environment, config, num_envs=num_envs, episode_metrics=episode_metrics
    )
    rows = training.calls()
    calls = np.array([next(rows) for _ in range(-(-steps // num_envs))], np.int32)

    def train(key: jax.Array) -> tuple[LearnerState, dict[str, jax.Array]]:
        count = jnp.int32(len(calls))
        state, episodes = training.advance(training.init(key), jnp.asarray(calls), count)
        return state.learner, {**episodes, **state.sums.means()}

    return train


def _init(
    agent: Agent,
    environment: PureEnvironment,
    replay: DeviceReplay,
    num_envs: int,
    no_sums: Sums,
    key: jax.Array,
) -> TrainState:
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
        replay=replay.init(),
        key=jax.random.key_data(draw_key),
        progress=Progress(zero, zero, zero, zero, zero - 1, zero - 1),
        sums=no_sums,
    )
    # Some agents begin with weakly typed numbers, which a loop must not change.
    return jax.tree.map(
        lambda x: jax.lax.convert_element_type(x, x.dtype) if not is_key(x) else x, state
    )


def _act(
    agent: Agent,
    environment: PureEnvironment,
    replay: DeviceReplay,
    state: TrainState,
    episode_metrics: tuple[str, ...],
) -> tuple[TrainState, dict[str, jax.Array]]:
    """One time step in every environment: the next state, and a row of the episodes."""
    before, progress = state.environments.timestep, state.progress
    is_last = before.step_type == StepType.LAST
    params = agent.acting_params(state.learner)
    decision = jax.vmap(agent.explore, (None, 0, 0))(params, state.actors, before)
    rows = rows_of(before, decision.action, decision.extras)
    move = jax.vmap(functools.partial(pure.advance, environment))
    environments = move(state.environments, decision.action)
    returns = jnp.where(is_last, 0.0, state.returns + environments.timestep.reward)
    ends = environments.timestep.step_type == StepType.LAST
    episodes = {
        "return": jnp.where(ends, returns, jnp.nan),
        "length": jnp.where(ends, environments.length, jnp.nan),
        **{name: jnp.where(is_last, decision.extras[name], jnp.nan) for name in episode_metrics},
    }
    steps = progress.steps + jnp.sum(~is_last, dtype=jnp.int32)
    state = state._replace(
        actors=decision.state,
        environments=environments,
        returns=returns,
        replay=replay.add(state.replay, rows),
        progress=progress._replace(rows=progress.rows + 1, steps=steps),
    )
    return state, episodes


def _calls(
    agent: Agent, replay: DeviceReplay, config: ReplayConfig, num_envs: int
) -> Iterator[tuple[int, int]]:
    """The calls after each row, from the host's own schedule, whose rounds need no data."""
    sequence, schedule = agent.sequence, UpdateSchedule(config, num_envs=num_envs, seed=0)
    for row in itertools.count(1):
        calls = {"newest": 0, "replayed": 0}
        rounds, incomplete = divmod(row - sequence.length + sequence.period, sequence.period)
        if config.pace == "rounds" and rounds > 0 and not incomplete:
            kept = min(row * num_envs, replay.capacity)
            schedule.observe(steps=0, rows=kept, sequences=rounds * num_envs, rounds=rounds)
            while kind := schedule.due:
                calls[kind] += 1
                schedule.done()
        yield calls["newest"], calls["replayed"]
