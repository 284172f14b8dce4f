"""Estimators: the policy's gradient with respect to its statistics, and the critic's losses.

Unbatched. A segment has rows 0 .. T; results belong to its source steps 0 .. T-1. phi, the policy's
statistics at the source steps, are `[T, D]` and take no gradient.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ... import losses
from ...datatypes import Row
from .. import sequences
from .config import Config
from .policies import Estimates, Policy


class Terms(NamedTuple):
    """Outputs of an estimator.

    Attributes:
      gradients: `[T, D]`, ascent, before entropy and projection.
      critic_losses: `[T]`; takes gradients.
      errors: `[T]`, return minus estimate.
    """

    gradients: jax.Array
    critic_losses: jax.Array
    errors: jax.Array


def acer(
    phi: jax.Array,
    estimates: Estimates,
    rows: Row,
    mask: jax.Array,
    *,
    policy: Policy,
    config: Config,
) -> Terms:
    """ACER's estimator (Algorithms 2 and 3).

    Args:
      phi: `[T, D]`.
      estimates: `[T + 1, ...]`.
      rows: `[T + 1, ...]`, with the policy's extras.
      mask: bool `[T + 1]`, False for padding.
      policy: the kind of policy.
      config: hyper-parameters.
    """
    critic_returns, policy_returns = _returns(estimates, rows, mask, policy=policy, config=config)
    source = jax.tree.map(lambda x: x[:-1], estimates)
    gradients = jax.vmap(policy.gradient)(phi, source, _sources(rows), policy_returns)
    errors = critic_returns - source.q
    rho = jnp.exp(source.log_rho)
    value_losses = jax.vmap(policy.value_loss)(critic_returns, source.q, source.v, rho)
    return Terms(gradients, 0.5 * jnp.square(errors) + value_losses, errors)


def tis(
    phi: jax.Array,
    estimates: Estimates,
    rows: Row,
    mask: jax.Array,
    *,
    policy: Policy,
    config: Config,
) -> Terms:
    """The estimator of the baseline TIS (E.2), with arguments as `acer`; on-policy it is A3C's."""
    weights, advantages = losses.truncated_importance_trajectory(
        estimates.v[:-1],
        estimates.v[1:],
        _rewards(rows, config),
        sequences.discounts(rows, config.discount),
        estimates.log_rho[:-1],
        sequences.acted(rows, mask),
        config.truncation,
    )
    scores = jax.vmap(jax.grad(policy.log_prob))(phi, _sources(rows))
    # The error of V, which takes the gradient: return minus V. `advantages` takes none.
    errors = jax.lax.stop_gradient(advantages + estimates.v[:-1]) - estimates.v[:-1]
    gradients = (weights * advantages)[:, None] * scores
    return Terms(gradients, 0.5 * weights * jnp.square(errors), errors)


def constrain(
    gradients: jax.Array, average: jax.Array, phi: jax.Array, *, policy: Policy, delta: float
) -> jax.Array:
    """Projects the gradient of each step onto the trust region of that step (eq. 12).

    Args:
      gradients: `[T, D]`.
      average: `[T, D]`, the average policy's statistics.
      phi: `[T, D]`.
      policy: the kind of policy.
      delta: the bound of the linearised divergence, > 0.
    """
    kl_gradients = jax.vmap(jax.grad(policy.kl, argnums=1))(average, phi)
    project = jax.vmap(losses.trust_region_projection, in_axes=(0, 0, None))
    return project(gradients, kl_gradients, delta)


def _returns(
    estimates: Estimates, rows: Row, mask: jax.Array, *, policy: Policy, config: Config
) -> tuple[jax.Array, jax.Array]:
    """Returns for the critic and for the policy, `[T]` each."""
    r_t, discount_t = _rewards(rows, config), sequences.discounts(rows, config.discount)
    rho_t, q_t, v_t = jnp.exp(estimates.log_rho[1:]), estimates.q[1:], estimates.v[1:]
    continues_t = sequences.acted(rows, mask)
    if config.returns == "importance":
        both = losses.importance_sampled_return(v_t, r_t, discount_t, rho_t, continues_t)
        return both, both
    cut_rho_t = jnp.where(continues_t, rho_t, 0.0)
    retrace = losses.q_retrace(q_t, v_t, r_t, discount_t, cut_rho_t, policy.root)
    if not policy.uses_opc:
        return retrace, retrace
    return retrace, losses.q_opc(q_t, v_t, r_t, discount_t, continues_t)


def _rewards(rows: Row, config: Config) -> jax.Array:
    """Rewards at the destination steps, clipped and then scaled, `[T]`."""
    return config.reward_scale * sequences.rewards(rows, config.max_abs_reward)


def _sources(rows: Row) -> Row:
    return jax.tree.map(lambda x: x[:-1], rows)
