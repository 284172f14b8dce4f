"""ACER's policy gradient (Wang et al. 2017) in the space of the policy's statistics.

Unbatched, for one state. A policy is a distribution f(.|phi). A network computes its statistics phi
`[D]`: the probabilities of a categorical distribution, or the mean of a Gaussian. Gradients here
are with respect to phi, in the direction of **ascent**. Gradients of the network's parameters
follow by backpropagation (`jax.vjp`, or the loss -sum(stop_gradient(gradient) * phi)). No gradient
flows through the results. `A` denotes the number of actions.

The statistics of a categorical policy are its probabilities, as in the paper. In the space of
logits, which some implementations use, the trust region is a different one.
"""

import chex
import jax
import jax.numpy as jnp

from .policy_gradient import tislr_loss

_stop = jax.lax.stop_gradient


def acer_policy_gradient(
    pi: jax.Array,
    mu: jax.Array,
    q: jax.Array,
    v: jax.Array,
    a: jax.Array,
    return_: jax.Array,
    c: float,
) -> jax.Array:
    """The truncated estimator with bias correction over all actions (ACER, eq. 9 and 10).

    min(c, rho(a)) (Q_ret - V) grad log pi(a)
    + sum_b [1 - c / rho(b)]_+ pi(b) (Q(b) - V) grad log pi(b),   rho = pi / mu,

    where grad is with respect to each probability independently. The sum uses Q(b) of every action
    b; Algorithm 2 prints Q of the taken action, which is a misprint. c = infinity gives importance
    sampling without truncation. c = 0 gives an actor-critic that does not use the return.

    Args:
      pi: `[A]`, the policy's probabilities, its statistics.
      mu: `[A]`, the behaviour policy's; mu(a) > 0.
      q: `[A]`, estimated action values.
      v: `[]`, the state's value, a baseline.
      a: `[]`, the action taken.
      return_: `[]`, the return estimate of that action, Q_ret.
      c: truncation of the importance weights, >= 0; not Retrace's c.

    Returns:
      The gradient with respect to `pi`, `[A]`, ascent.
    """
    return _stop(-jax.grad(tislr_loss)(jnp.asarray(pi), mu, q, v, a, return_, c))


def acer_sampled_policy_gradient(
    score: jax.Array,
    rho: jax.Array,
    advantage: jax.Array,
    score_sampled: jax.Array,
    rho_sampled: jax.Array,
    advantage_sampled: jax.Array,
    c: float,
) -> jax.Array:
    """The truncated estimator with bias correction for one sampled action a' (ACER, eq. 16).

    min(c, rho(a)) (Q_opc - V) grad log f(a|phi)
    + [1 - c / rho(a')]_+ (Q(a') - V) grad log f(a'|phi).

    Args:
      score: `[D]`, grad log f(a|phi) of the action taken.
      rho: `[]`, its importance ratio, >= 0.
      advantage: `[]`, its return estimate minus the state's value.
      score_sampled: `[D]`, grad log f(a'|phi) of the action a' drawn.
      rho_sampled: `[]`, its importance ratio, > 0.
      advantage_sampled: `[]`, its estimated value minus the state's.
      c: truncation of the importance weights, >= 0; not Retrace's c.

    Returns:
      The gradient with respect to the statistics, `[D]`, ascent.
    """
    chex.assert_rank([score, score_sampled], 1)
    chex.assert_rank([rho, advantage, rho_sampled, advantage_sampled], 0)
    chex.assert_equal_shape([score, score_sampled])
    excess = jnp.maximum(1.0 - c / rho_sampled, 0.0)
    truncated = jnp.minimum(c, rho) * advantage * score
    return _stop(truncated + excess * advantage_sampled * score_sampled)


def trust_region_projection(
    gradient: jax.Array, kl_gradient: jax.Array, delta: float | jax.Array
) -> jax.Array:
    """Projects a gradient onto the linearised trust region (ACER, eq. 11 and 12).

    z = g - max(0, (k . g - delta) / |k|^2) k minimises |g - z|^2 / 2 subject to k . z <= delta,
    where k = grad_phi KL(f(.|phi_average) || f(.|phi)) with the average policy first. The function
    is for one time step: for a mean over time steps or a batch, delta has a different meaning.

    The result is g where k = 0 and where k . g <= delta.

    Args:
      gradient: `[D]`, g, in the direction of ascent.
      kl_gradient: `[D]`, k.
      delta: > 0, bound on the increase of the divergence, to first order.

    Returns:
      z, `[D]`.
    """
    chex.assert_rank([gradient, kl_gradient], 1)
    chex.assert_equal_shape([gradient, kl_gradient])
    # Scaled by k's largest entry, whose square may overflow: k = -average / pi is unbounded for
    # probabilities. The cap of 1e37 keeps the reciprocal of the scale from underflowing.
    size = jnp.minimum(jnp.max(jnp.abs(kl_gradient)), 1e37)
    unit = jnp.where(size > 0, kl_gradient / jnp.where(size > 0, size, 1.0), 0.0)
    excess = unit @ gradient - delta / jnp.where(size > 0, size, 1.0)
    scale = jnp.where(size > 0, jnp.maximum(excess, 0.0) / jnp.maximum(unit @ unit, 1.0), 0.0)
    return _stop(gradient - scale * unit)
