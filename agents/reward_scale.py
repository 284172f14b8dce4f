"""Rewards in units of the largest return, so that values are near [-1, 1] on any task.

Actors accumulate discounted rewards over the running episode: S_t = sum_k discount^k r_{t-k}. The
learner divides the rewards of every sample by M, the largest |S_t| in all samples so far. Our
addition, similar to the scaling by a running deviation of the same sum (Engstrom et al. 2020,
"Implementation Matters in Deep RL", section 3); a maximum bounds the returns, as the support of a
distribution requires.

Bounds. S looks back and a return G looks forward. Since r_t = S_t - discount S_{t-1},

    |G| <= (1 + discount) M       if all rewards have one sign,
    |G| <= (1 + 2 discount) M     otherwise,

and |G| is near M where rewards change slowly. A value that is bootstrapped where a time limit of H
steps cuts episodes off belongs to an episode that repeats for ever: larger by
1 / (1 - discount^H), 5.5 for H = 20 and discount 0.99. The presets' support of [-2, 2] has room for
a factor of 2, so M counts a truncated episode's largest |S_t| times 1 / (2 (1 - discount^H)) where
that is above 1 (H < 69 for discount 0.99).
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType

from ..datatypes import Sample, TimeStep
from .base import ActingFunction, Agent, Decision, Params, Update, decorator

DISCOUNTED_SUM = "discounted_sum"  # name of the extra
HEADROOM = 2.0  # of the presets' supports over the largest sum
LARGEST_MASS = 0.05  # outside of each end of a support


class Scaled(NamedTuple):
    """The largest absolute discounted sum `[]`, and the agent's own learner state or gradients."""

    largest: jax.Array  # in all samples so far, 0 at first, or in the gradients' sample too
    learner: Any


class EpisodeSums(NamedTuple):
    """Of an episode so far: newest S_t, largest |S|, number of transitions, `[]` each."""

    newest: jax.Array
    largest: jax.Array
    steps: jax.Array


class ScaledActorState(NamedTuple):
    """The episode's sums up to the time step before, and the agent's own state."""

    sums: EpisodeSums
    actor: Any


def _no_sums() -> EpisodeSums:
    return EpisodeSums(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))


def accumulate(
    before: EpisodeSums, timestep: TimeStep, discount: float
) -> tuple[EpisodeSums, jax.Array]:
    """The sums at t, given those at t - 1 (ignored on a first step), and what t contributes.

    The contribution to the scale, float32 `[]`, is S_t, or more where a time limit cuts off.
    """
    is_first = timestep.step_type == StepType.FIRST
    newest = discount * before.newest + timestep.reward
    largest = jnp.maximum(before.largest, jnp.abs(newest))
    sums = EpisodeSums(newest.astype(jnp.float32), largest, before.steps + 1)
    sums = jax.tree.map(lambda x, zero: jnp.where(is_first, zero, x), sums, _no_sums())
    if np.float32(discount) == 1:
        return sums, sums.newest  # a value through a time limit has no bound
    is_truncated = (timestep.step_type == StepType.LAST) & (timestep.discount > 0)
    factor = 1 / (HEADROOM * (1 - discount**sums.steps))
    counted = jnp.where(is_truncated & (factor > 1), factor * sums.largest, sums.newest)
    return sums, counted


def logged_sums(timesteps: TimeStep, discount: float) -> jax.Array:
    """What each time step `[N]` of episodes that follow each other contributes: `[N]`."""
    step = functools.partial(accumulate, discount=discount)
    return jax.lax.scan(step, _no_sums(), timesteps)[1]


@decorator
def scales_rewards(make_agent: Any, environment_spec: Any, config: Any, **parts: Any) -> Agent:
    """Where the config has `scale_rewards`, samples have scaled rewards.

    The metrics then include the divisor, `reward_scale`.
    """
    agent: Agent = make_agent(environment_spec, config, **parts)
    if not config.scale_rewards:
        return agent
    discount = config.discount
    extras = {**agent.sequence.extras, DISCOUNTED_SUM: jax.ShapeDtypeStruct((), np.float32)}

    def init(key: jax.Array) -> Scaled:
        return Scaled(jnp.zeros(()), agent.init(key))

    def begin(key: jax.Array, actor_id: Any, num_actors: int) -> ScaledActorState:
        return ScaledActorState(_no_sums(), agent.begin(key, actor_id, num_actors))

    def accumulating(act: ActingFunction) -> ActingFunction:
        def accumulating(params: Params, state: ScaledActorState, timestep: TimeStep) -> Decision:
            sums, counted = accumulate(state.sums, timestep, discount)
            decision = act(params, state.actor, timestep)
            extras = {**decision.extras, DISCOUNTED_SUM: counted}
            return Decision(decision.action, extras, ScaledActorState(sums, decision.state))

        return accumulating

    def gradients(state: Scaled, sample: Sample) -> tuple[Scaled, Update]:
        rest = dict(sample.rows.extras)
        sums = jnp.where(sample.mask, jnp.abs(rest.pop(DISCOUNTED_SUM)), 0.0)
        largest = jnp.maximum(state.largest, jnp.max(sums))
        scale = jnp.where(largest > 0, largest, 1.0)  # 1 while all rewards were 0
        rows = sample.rows._replace(reward=sample.rows.reward / scale, extras=rest)
        grads, update = agent.gradients(state.learner, sample._replace(rows=rows))
        metrics = {**update.metrics, "reward_scale": scale}
        return Scaled(largest, grads), update._replace(metrics=metrics)

    def apply(state: Scaled, grads: Scaled) -> Scaled:
        largest = jnp.maximum(state.largest, grads.largest)
        return Scaled(largest, agent.apply(state.learner, grads.learner))

    return agent._replace(
        init=init,
        acting_params=lambda state: agent.acting_params(state.learner),
        begin=begin,
        explore=accumulating(agent.explore),
        exploit=accumulating(agent.exploit),
        gradients=gradients,
        apply=apply,
        sequence=dataclasses.replace(agent.sequence, extras=extras),
    )


def advise_on_support(config: Any, metrics: Mapping[str, float]) -> str | None:
    """`AgentEntry.advice`: names the end of the support beyond which much of the targets lies.

    None if at most 5 % of the mass, by `clipped_below_vmin` and `clipped_above_vmax`, is beyond
    each end.
    """
    ends = {"below vmin": config.vmin, "above vmax": config.vmax}
    mass, where = max((metrics.get(f"clipped_{w.replace(' ', '_')}", 0.0), w) for w in ends)
    if not mass > LARGEST_MASS:
        return None
    or_scale = ", or set scale_rewards with vmin -2 and vmax 2"
    return (
        f"{mass:.0%} of the returns that values are trained with lie {where} = {ends[where]:g} and "
        f"are clipped: widen vmin and vmax{'' if config.scale_rewards else or_scale}."
    )
