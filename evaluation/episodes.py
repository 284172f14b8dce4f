"""Evaluation episodes with `Agent.exploit`, without bias towards short episodes.

`E` denotes the number of parallel environments, `N` the number of episodes.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.base import ActorState, Agent, Params
from ..datatypes import TimeStep, VectorEnvironment
from ..environments.failures import drawn
from ..training.metrics import RunningReturns


class EpisodeResults(NamedTuple):
    """Results of N episodes, ordered by environment and then by time.

    Attributes:
      returns: float64 `[N]`, undiscounted sum of each episode's rewards.
      lengths: int64 `[N]`, number of transitions of each episode: its time steps minus one.
      modes: bool `[N]` for each requested mode: whether the episode was of this mode.
      metrics: float64 `[N]` for each requested metric that the agent has, at the last time step.
      states: final actor states, which a later call may continue from.
    """

    returns: np.ndarray
    lengths: np.ndarray
    modes: dict[str, np.ndarray]
    metrics: dict[str, np.ndarray]
    states: ActorState = None


def run_episodes(
    agent: Agent,
    params: Params,
    environment: VectorEnvironment,
    *,
    key: jax.Array,
    num_episodes: int,
    before_step: Callable[[TimeStep], None] | None = None,
    on_frame: Callable[[np.ndarray], None] | None = None,
    states: ActorState = None,
    modes: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> EpisodeResults:
    """Acts with `agent.exploit` until `num_episodes` episodes have ended.

    The first N episodes that end in any environment would be a sample biased towards short ones.
    Therefore the number of episodes of each environment is fixed beforehand (the first `N mod E`
    environments have one more than the others), and further episodes are ignored.

    The environment is reset first. Its seed and `key` are the only sources of randomness. If
    episodes never end, this does not return.

    Args:
      agent: its `begin` and `exploit` are used.
      params: output of `agent.acting_params`.
      environment: E environments.
      key: PRNG key of the initial actor states.
      num_episodes: N, at least 1; it may be less than E, and need not be divisible by it.
      before_step: called before each step of the environments with their newest time steps; an
        error of it ends the episodes.
      on_frame: called with a frame of the first environment, uint8 `[height, width, 3]`, at each
        of its counted time steps; for example `VideoWriter.append`.
      states: final states of an earlier call, for an agent that adapts its behaviour during
        evaluation; their buffers are donated. None: new states.
      modes: `AgentEntry.evaluation_modes`.
      metrics: names of extras, such as `AgentEntry.episode_metrics`; those that `exploit` does not
        return are left out.

    Raises:
      ValueError: `num_episodes` is less than 1.
    """
    if num_episodes < 1:
        raise ValueError(f"num_episodes must be at least 1, got {num_episodes}.")
    num_envs = environment.num_envs
    if states is None:
        states = begin_states(agent, key, num_envs)
    decide = batched(agent.exploit, (None, 0, 0), donate_argnums=1)
    timestep = environment.reset()
    extras = jax.eval_shape(decide, params, states, timestep).extras
    metrics = [name for name in metrics if name in extras]
    running, finished = RunningReturns(num_envs), [list[tuple[Any, ...]]() for _ in range(num_envs)]
    share, rest = divmod(num_episodes, num_envs)

    def is_done(index: int) -> bool:
        return len(finished[index]) == share + (index < rest)

    while True:
        if on_frame is not None and not is_done(0):
            on_frame(drawn(environment.render))
        decision = decide(params, states, timestep)
        states = decision.state
        chosen = jax.device_get([decision.extras[name] for name in (*modes, *metrics)])
        for index, *episode in zip(*running.add(timestep), strict=True):
            if not is_done(index):
                finished[index].append((*episode, *(extra[index] for extra in chosen)))
        if all(map(is_done, range(num_envs))):
            break
        if before_step is not None:
            before_step(timestep)
        timestep = environment.step(np.asarray(decision.action))
    returns, lengths, *chosen = zip(*itertools.chain(*finished), strict=True)
    return EpisodeResults(
        np.array(returns, np.float64),
        np.array(lengths, np.int64),
        {name: np.array(x, bool) for name, x in zip(modes, chosen, strict=False)},
        {name: np.array(x, float) for name, x in zip(metrics, chosen[len(modes) :], strict=True)},
        states,
    )


def begin_states(agent: Agent, key: jax.Array, num_envs: int) -> ActorState:
    """New actor states `[E, ...]`."""
    keys, ids = jax.random.split(key, num_envs), jnp.arange(num_envs, dtype=jnp.int32)
    return batched(agent.begin, (0, 0, None), static_argnums=2)(keys, ids, num_envs)


@functools.lru_cache(maxsize=24)  # each new jax.jit compiles again; an agent is evaluated often
def batched(
    function: Callable[..., Any], in_axes: tuple[int | None, ...], **options: Any
) -> Callable[..., Any]:
    """`jax.jit` with options, of a function over the environments of an evaluation."""
    return jax.jit(jax.vmap(function, in_axes=in_axes), **options)
