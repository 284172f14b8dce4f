"""Observations in units of their deviations: each entry has mean 0 and variance 1.

The learner counts the rows that it draws: they are its networks' inputs, and all that it sees in
any topology. SimBa's statistics (Lee et al. 2025, section 4.1) count the rows that arrive.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..datatypes import EnvironmentSpec, Sample, TimeStep
from .base import ActingFunction, ActorState, Agent, Decision, Update, decorator


class Moments(NamedTuple):
    """Of rows: their number `[]`; mean and variance of each entry, in an observation's shape."""

    number: jax.Array
    mean: jax.Array
    variance: jax.Array


class Normalized(NamedTuple):
    """Moments, and the agent's own learner state, gradients or acting parameters."""

    moments: Moments
    own: Any


def merge(one: Moments, other: Moments) -> Moments:
    """Moments of the rows of both (Chan et al. 1983), of which `other` has some."""
    number, step = one.number + other.number, other.mean - one.mean
    share = other.number / number
    within = (1 - share) * one.variance + share * other.variance
    return Moments(number, one.mean + share * step, within + share * (1 - share) * step**2)


def normalize(observation: Any, moments: Moments) -> jax.Array:
    """Observations `[..., *shape]` with mean 0 and variance 1, clipped to [-10, 10]."""
    unit = (observation - moments.mean) / jnp.sqrt(moments.variance + 1e-8)  # as SimBa
    return jnp.clip(unit, -10.0, 10.0)  # as Stable-Baselines3's `VecNormalize`


@decorator
def normalizes_observations(
    make_agent: Any, environment_spec: EnvironmentSpec, config: Any, **parts: Any
) -> Agent:
    """Where the config has `normalize_observations`, float arrays are normalised.

    Images are not: networks scale them.
    """
    agent, seen = make_agent(environment_spec, config, **parts), environment_spec.observations
    if not (config.normalize_observations and np.issubdtype(seen.dtype, np.floating)):
        return agent

    def init(key: jax.Array) -> Normalized:
        zeros = jnp.zeros(seen.shape)
        return Normalized(Moments(jnp.zeros(()), zeros, zeros + 1), agent.init(key))

    def normalizing(act: ActingFunction) -> ActingFunction:
        def normalizing(params: Normalized, state: ActorState, timestep: TimeStep) -> Decision:
            observation = normalize(timestep.observation, params.moments)
            return act(params.own, state, timestep._replace(observation=observation))

        return normalizing

    def gradients(state: Normalized, sample: Sample) -> tuple[Normalized, Update]:
        observation, mask = sample.rows.observation, sample.mask
        where = mask.reshape(*mask.shape, *[1] * len(seen.shape))
        mean, variance = (of(observation, axis=(0, 1), where=where) for of in (jnp.mean, jnp.var))
        drawn = Moments(jnp.sum(mask, dtype=jnp.float32), mean, variance)
        observation = normalize(observation, merge(state.moments, drawn))
        rows = sample.rows._replace(observation=observation)
        grads, update = agent.gradients(state.own, sample._replace(rows=rows))
        return Normalized(drawn, grads), update

    return agent._replace(
        init=init,
        acting_params=lambda state: Normalized(state.moments, agent.acting_params(state.own)),
        explore=normalizing(agent.explore),
        exploit=normalizing(agent.exploit),
        gradients=gradients,
        apply=lambda state, grads: Normalized(
            merge(state.moments, grads.moments), agent.apply(state.own, grads.own)
        ),
    )
