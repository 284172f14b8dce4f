"""ACER's policy gradient (Wang et al. 2017) in the space of the policy's statistics.

Unbatched, for one state. A policy is a distribution f(.|phi) whose statistics phi `[D]` a network
computes: the probabilities of a categorical distribution, the mean of a Gaussian. Gradients here
are with respect to phi, in the direction of **ascent**; to go on to the parameters, they are pulled
back through the network (`jax.vjp`, or the loss -sum(stop_gradient(gradient) * phi)). They are free
of gradients themselves. `A` denotes the number of actions.

The statistics of a categorical policy are its probabilities, as the paper has it. In the space of
logits, which others use, the trust region below is another one.
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

    where grad is with respect to the probabilities, each on its own. The sum has Q of every action
    b (Algorithm 2 prints that of the taken one). c = infinity leaves importance sampling, c = 0 an
    actor-critic that never sees the return.

    Args:
      pi: `[A]`, the policy's probabilities, its statistics.
      mu: `[A]`, the behaviour policy's; mu(a) > 0.
      q: `[A]`, estimated action values.
      v: `[]`, the state's value, a baseline.
      a: `[]`, the action taken.
      return_: `[]`, its return estimate, Q_ret.
      c: truncation of the importance weights, >= 0; not Retrace's.

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
    """The same with one action a' drawn from the policy in place of all actions (ACER, eq. 16).

    min(c, rho(a)) (Q_opc - V) grad log f(a|phi)
    + [1 - c / rho(a')]_+ (Q(a') - V) grad log f(a'|phi).

    Args:
      score: `[D]`, grad log f(a|phi) of the action taken.
      rho: `[]`, its importance ratio, >= 0.
      advantage: `[]`, its return estimate less the state's value.
      score_sampled: `[D]`, grad log f(a'|phi) of the action a' drawn.
      rho_sampled: `[]`, its importance ratio, > 0.
      advantage_sampled: `[]`, its estimated value less the state's.
      c: truncation of the importance weights, >= 0; not Retrace's.

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
    """The gradient nearest to the given one that keeps to the trust region (ACER, eq. 11 and 12).

    z = g - max(0, (k . g - delta) / |k|^2) k, which minimises |g - z|^2 / 2 subject to
    k . z <= delta; k = grad_phi KL(f(.|phi_average) || f(.|phi)), the average policy first. It is
    for one time step: on a mean over time steps or a batch, delta would mean something else.

    Where k is 0, g is returned; it is where k . g <= delta, too.

    Args:
      gradient: `[D]`, g, in the direction of ascent.
      kl_gradient: `[D]`, k.
      delta: > 0, how much the divergence may grow, to first order.

    Returns:
      z, `[D]`.
    """
    chex.assert_rank([gradient, kl_gradient], 1)
    chex.assert_equal_shape([gradient, kl_gradient])
    # In units of k's largest entry, whose square may not be a number of this type. Of probabilities
    # k is -average / pi: it has no bound. Nor must the unit's reciprocal vanish: 1e37 is enough.
    size = jnp.minimum(jnp.max(jnp.abs(kl_gradient)), 1e37)
    unit = jnp.where(size > 0, kl_gradient / jnp.where(size > 0, size, 1.0), 0.0)
    excess = unit @ gradient - delta / jnp.where(size > 0, size, 1.0)
    scale = jnp.where(size > 0, jnp.maximum(excess, 0.0) / jnp.maximum(unit @ unit, 1.0), 0.0)
    return _stop(gradient - scale * unit)
