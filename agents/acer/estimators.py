"""What one segment says: the policy's gradient at its statistics, and the critic's losses.

Unbatched. Rows 0 .. T; results are of the source steps 0 .. T-1. phi, the policy's statistics, are
`[T, D]` and free of gradients.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ... import losses
from ...datatypes import Row
from .config import Config
from .policies import Estimates, Policy


class Terms(NamedTuple):
    """What an estimator gives.

    Attributes:
      gradients: `[T, D]`, ascent, before entropy and projection.
      critic_losses: `[T]`; takes gradients.
      errors: `[T]`, return less estimate.
    """

    gradients: jax.Array
    critic_losses: jax.Array
    errors: jax.Array


def acer(
    policy: Policy, config: Config, phi: jax.Array, of: Estimates, rows: Row, mask: jax.Array
) -> Terms:
    """ACER's (Algorithms 2 and 3)."""
    of_critic, of_policy = _returns(policy, config, of, rows, mask)
    source = jax.tree.map(lambda x: x[:-1], of)
    gradients = jax.vmap(policy.gradient)(phi, source, _sources(rows), of_policy)
    errors = of_critic - source.q
    rho = jnp.exp(source.log_rho)
    of_values = jax.vmap(policy.value_loss)(of_critic, source.q, source.v, rho)
    return Terms(gradients, 0.5 * jnp.square(errors) + of_values, errors)


def tis(
    policy: Policy, config: Config, phi: jax.Array, of: Estimates, rows: Row, mask: jax.Array
) -> Terms:
    """The baseline's (E.2); on-policy it is A3C."""
    weights, advantages = losses.truncated_importance_trajectory(
        of.v[:-1],
        of.v[1:],
        _rewards(config, rows),
        config.discount * rows.discount[1:],
        of.log_rho[:-1],
        mask[1:] & ~rows.is_last[1:],
        config.truncation,
    )
    scores = jax.vmap(jax.grad(policy.log_prob))(phi, _sources(rows))
    # As a loss of V: the return less V, of which `advantages` has no gradient.
    errors = jax.lax.stop_gradient(advantages + of.v[:-1]) - of.v[:-1]
    gradients = (weights * advantages)[:, None] * scores
    return Terms(gradients, 0.5 * weights * jnp.square(errors), errors)


def constrain(
    policy: Policy, gradients: jax.Array, average: jax.Array, phi: jax.Array, delta: float
) -> jax.Array:
    """Each step's gradient, all `[T, D]`, projected onto its own trust region (eq. 12)."""
    kl_gradients = jax.vmap(jax.grad(policy.kl, argnums=1))(average, phi)
    project = jax.vmap(losses.trust_region_projection, in_axes=(0, 0, None))
    return project(gradients, kl_gradients, delta)


def _returns(
    policy: Policy, config: Config, of: Estimates, rows: Row, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """For the critic and for the policy, `[T]` each."""
    r_t, discount_t = _rewards(config, rows), config.discount * rows.discount[1:]
    rho_t, q_t, v_t = jnp.exp(of.log_rho[1:]), of.q[1:], of.v[1:]
    continues_t = mask[1:] & ~rows.is_last[1:]
    if config.returns == "importance":
        both = losses.importance_sampled_return(v_t, r_t, discount_t, rho_t, continues_t)
        return both, both
    cut_rho_t = jnp.where(continues_t, rho_t, 0.0)
    retrace = losses.q_retrace(q_t, v_t, r_t, discount_t, cut_rho_t, policy.root)
    if not policy.graded_by_opc:
        return retrace, retrace
    return retrace, losses.q_opc(q_t, v_t, r_t, discount_t, continues_t)


def _rewards(config: Config, rows: Row) -> jax.Array:
    """As the update sees them, at the destination steps, `[T]`."""
    clipped = jnp.clip(rows.reward[1:], -config.max_abs_reward, config.max_abs_reward)
    return config.reward_scale * clipped


def _sources(rows: Row) -> Row:
    return jax.tree.map(lambda x: x[:-1], rows)
