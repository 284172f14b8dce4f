"""D4PG's actors: the policy's action, with Gaussian noise while training."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from dm_env import StepType, specs

from ...datatypes import TimeStep
from ...networks import D4PGNetworks
from ...networks.d4pg import middle_and_half
from ..base import Decision
from .config import Config
from .networks import Params


class ActorState(NamedTuple):
    """State of an actor between time steps.

    Attributes:
      key: PRNG key of the noise.
      noise: `[...]` of one action, the noise at the time step before, in units of sigma.
      sigma: float32 `[]`, standard deviation of the noise, in units of half the actions' range.
      correlation: float32 `[]`, of the noise at adjacent time steps.
    """

    key: jax.Array
    noise: jax.Array
    sigma: jax.Array
    correlation: jax.Array


def begin(
    key: jax.Array,
    actor_id: jax.Array,
    num_actors: int,
    *,
    config: Config,
    actions: specs.BoundedArray,
) -> ActorState:
    """The state before the first time step."""
    sigma, correlation = noise_of(config, actor_id, num_actors)
    return ActorState(key, jnp.zeros(actions.shape, jnp.float32), sigma, correlation)


def noise_of(config: Config, actor_id: jax.Array, num_actors: int) -> tuple[jax.Array, jax.Array]:
    """Sigma and correlation of one actor's noise.

    With "fixed" exploration they are the config's. With "per_actor" they grow from the first actor
    to the last: sigma from `sigma_min` to `sigma_max`, the correlation from 0 to the config's.

    Args:
      config: hyper-parameters.
      actor_id: `[]`, in 0 .. num_actors - 1.
      num_actors: >= 1. A single actor gets sigma's geometric mean, and half of the correlation.

    Returns:
      Two of float32 `[]`.
    """
    if config.exploration == "fixed":
        return jnp.float32(config.sigma), jnp.float32(config.noise_correlation)
    share = actor_id / (num_actors - 1) if num_actors > 1 else jnp.full((), 0.5)
    sigma = config.sigma_min * (config.sigma_max / config.sigma_min) ** share
    return jnp.float32(sigma), jnp.float32(config.noise_correlation * share)


def explore(
    params: Params,
    state: ActorState,
    timestep: TimeStep,
    *,
    networks: D4PGNetworks,
    actions: specs.BoundedArray,
) -> Decision:
    """The policy's action plus noise, clipped to the bounds (Algorithm 1)."""
    key, noise_key = jax.random.split(state.key)
    fresh = jax.random.normal(noise_key, actions.shape)
    is_first = timestep.step_type == StepType.FIRST
    noise = jnp.where(is_first, fresh, correlated(state.noise, fresh, state.correlation))
    _, half = middle_and_half(actions)
    action = _policy(params, timestep, networks=networks) + state.sigma * half * noise
    return Decision(_clip(action, actions), {}, state._replace(key=key, noise=noise))


def correlated(before: jax.Array, fresh: jax.Array, correlation: jax.Array) -> jax.Array:
    """The next value of an autoregressive process with unit variance.

    Args:
      before: the value before; of unit variance.
      fresh: independent of it; of unit variance.
      correlation: `[]`, of the two values, in [0, 1).
    """
    return correlation * before + jnp.sqrt(1 - correlation**2) * fresh


def exploit(
    params: Params,
    state: ActorState,
    timestep: TimeStep,
    *,
    networks: D4PGNetworks,
    actions: specs.BoundedArray,
) -> Decision:
    """The policy's action."""
    return Decision(_clip(_policy(params, timestep, networks=networks), actions), {}, state)


def _policy(params: Params, timestep: TimeStep, *, networks: D4PGNetworks) -> jax.Array:
    features = networks.torso.apply(params.torso, timestep.observation[None])
    return networks.action(params.policy, features)[0]


def _clip(action: jax.Array, actions: specs.BoundedArray) -> jax.Array:
    """Clips to the bounds, so that the critic learns the value of the executed action."""
    return jnp.clip(action, actions.minimum, actions.maximum)
