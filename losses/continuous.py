"""Losses of deterministic actor-critics: N-step returns, three kinds of critic, the policy.

D4PG (Barth-Maron et al. 2018). Unbatched, for one window of N transitions. `L` denotes the atoms of
a categorical critic, `K` the components of a mixture of Gaussians, `D` the action's dimensions. The
suffix `_tm1` marks outputs of the online critic at the window's first step, which take the
gradient. The suffix `_t` marks outputs of the target critic at the bootstrap step, which take none.
For critics `r_t` and `discount_t` belong to the whole window, outputs of `n_step_return`; a
target is the distribution of `r_t + discount_t * Z_t`.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient as _stop

from . import distributional
from .ranks import assert_rank, assert_steps


class CriticLoss(NamedTuple):
    """A critic's loss for one window, and the window's priority in a prioritised replay.

    A cross-entropy is at least the entropy of its target, which no training reduces. The priority
    is 0 where the prediction equals the target, whatever the target's entropy.
    """

    loss: Array  # `[]`, takes the gradient
    priority: Array  # `[]`, >= 0, takes none


def n_step_return(r_t: Array, discount_t: Array) -> tuple[Array, Array]:
    """Discounted sum of rewards and product of discounts over a window (D4PG, section 3).

      return = r_1 + discount_1 r_2 + ... + discount_1 ... discount_{N-1} r_N,
      discount = discount_1 ... discount_N.

    A discount of 0 (a termination) ends the sum after the reward of its step and disables
    bootstrapping. A truncation keeps its discount. Pad a window that is shorter than N with rewards
    of 0 and discounts of **1**, and bootstrap from its last observation.

    Args:
      r_t: `[N]`, rewards that arrived at steps 1 .. N of the window.
      discount_t: `[N]`, discounts that arrived there, gamma included, in [0, 1].

    Returns:
      The return `[]` and the discount `[]` of the bootstrap value.
    """
    assert_steps(r_t=r_t, discount_t=discount_t)
    products = jnp.cumprod(discount_t)
    before = jnp.concatenate([jnp.ones_like(products[:1]), products[:-1]])
    return jnp.sum(before * r_t), products[-1]


def categorical_td_loss(
    atoms: Array, logits_tm1: Array, r_t: Array, discount_t: Array, probs_t: Array
) -> CriticLoss:
    """Cross-entropy -sum_i p'_i log softmax(logits)_i with the projected target p'.

    D4PG, appendix A ("Categorical") and B: p'_i = sum_j h_i(r_t + discount_t z_j) p_j, where h_i
    is the linear interpolation kernel of atom i. Mass outside the support moves to its end atoms.
    The priority is the Kullback-Leibler divergence KL(p', softmax(logits)).

    Args:
      atoms: `[L]`, the support z, increasing, L >= 2.
      logits_tm1: `[L]`, the prediction.
      r_t: `[]`.
      discount_t: `[]`, >= 0.
      probs_t: `[L]`, probabilities of the target critic's atoms; they sum to 1.

    Returns:
      The loss, >= 0, and the priority.
    """
    assert_rank(1, atoms=atoms, logits_tm1=logits_tm1, probs_t=probs_t)
    assert_rank(0, r_t=r_t, discount_t=discount_t)
    chex.assert_equal_shape([atoms, logits_tm1, probs_t])
    target = distributional.categorical_bellman_target(atoms, r_t, discount_t, probs_t)
    priority = distributional.categorical_kl_divergence(target, _stop(logits_tm1))
    return CriticLoss(distributional.categorical_cross_entropy(target, logits_tm1), priority)


def mixture_of_gaussians_td_loss(
    logits_tm1: Array,
    means_tm1: Array,
    scales_tm1: Array,
    r_t: Array,
    discount_t: Array,
    logits_t: Array,
    means_t: Array,
    scales_t: Array,
    key: Array,
    *,
    num_samples: int,
    min_scale: float,
) -> CriticLoss:
    """Sample-based cross-entropy -mean_j log p(y_j), y_j = r_t + discount_t z_j, z_j ~ p_target.

    D4PG, appendix A ("Mixture of Gaussians"). p(z) = sum_k softmax(logits)_k N(z; mean_k, scale_k).
    The log density is computed by log-sum-exp, so small scales do not underflow. A density can
    exceed 1, so the loss can be negative; it is at least log(min_k scale_k) + log(2 pi) / 2.

    The priority estimates KL(q, p) from the same samples, where q is the density of the y_j, as
    mean_j(r_j - 1 - log r_j) with r_j = p(y_j) / q(y_j) (Schulman 2020, "Approximating KL
    divergence"). No term is negative; the loss plus mean_j log q(y_j) would often be negative.
    Where no scale is raised, r has the mean 1 under q, and the estimate is unbiased. Scales of q
    below `min_scale` are raised to it, since no prediction has them: after a termination q has the
    largest density at the return that a prediction can have. The y_j are then still drawn as for
    the loss, from a density narrower than q: the estimate differs from KL(q, p), but is 0 if p = q.

    Args:
      logits_tm1: `[K]`, the predicted components' logits.
      means_tm1: `[K]`, their means.
      scales_tm1: `[K]`, their standard deviations, must be > 0; not checked.
      r_t: `[]`.
      discount_t: `[]`, >= 0.
      logits_t: `[K']`, the target components' logits.
      means_t: `[K']`, their means.
      scales_t: `[K']`, their standard deviations, must be > 0; not checked.
      key: PRNG key of the samples.
      num_samples: >= 1.
      min_scale: > 0, the smallest standard deviation that the critic can predict.

    Returns:
      The loss and the priority.
    """
    assert_rank(1, logits_tm1=logits_tm1, means_tm1=means_tm1, scales_tm1=scales_tm1)
    assert_rank(1, logits_t=logits_t, means_t=means_t, scales_t=scales_t)
    assert_rank(0, r_t=r_t, discount_t=discount_t)
    chex.assert_equal_shape([logits_tm1, means_tm1, scales_tm1])
    chex.assert_equal_shape([logits_t, means_t, scales_t])
    component_key, value_key = jax.random.split(key)
    log_weights_t = jax.nn.log_softmax(logits_t)
    component = jax.random.categorical(component_key, log_weights_t, shape=(num_samples, 1))
    draws = jax.random.normal(value_key, (num_samples, *means_t.shape))  # of every component
    samples = jnp.take_along_axis(scales_t * draws + means_t, component, axis=1)[:, 0]
    chex.assert_axis_dimension_gt(samples, 0, 0)
    values = _stop(r_t + discount_t * samples)
    log_probs = _log_density(values, jax.nn.log_softmax(logits_tm1), means_tm1, scales_tm1)
    scales = jnp.maximum(discount_t * scales_t, min_scale)
    log_q = _log_density(values, log_weights_t, r_t + discount_t * means_t, scales)
    log_ratios = _stop(log_probs - log_q)
    priority = jnp.mean(jnp.expm1(log_ratios) - log_ratios)
    return CriticLoss(-jnp.mean(log_probs), jnp.maximum(priority, 0.0))  # against rounding


def scalar_td_loss(q_tm1: Array, r_t: Array, discount_t: Array, q_t: Array) -> CriticLoss:
    """Half the squared TD error, 1/2 (r_t + discount_t q_t - q_tm1)^2 (D4PG, section 2, DDPG's).

    The priority is |r_t + discount_t q_t - q_tm1| (Schaul et al. 2016, section 3.3), for which
    the priority exponents of the literature are meant.

    Args:
      q_tm1: `[]`, the prediction.
      r_t: `[]`.
      discount_t: `[]`, >= 0.
      q_t: `[]`, the bootstrap value.

    Returns:
      The loss, >= 0, and the priority.
    """
    assert_rank(0, q_tm1=q_tm1, r_t=r_t, discount_t=discount_t, q_t=q_t)
    target = _stop(r_t + discount_t * q_t)
    return CriticLoss(0.5 * jnp.square(q_tm1 - target), jnp.abs(target - _stop(q_tm1)))


def deterministic_policy_gradient_loss(
    a_t: Array, dqda_t: Array, dqda_clipping: float | None = None
) -> Array:
    """A loss whose gradient with respect to the action is -dQ/da (D4PG, Algorithm 1).

    With a_t = pi(x), descent on this loss ascends Q along grad pi(x) * E[dZ/da]. The value of
    the loss is half the squared norm of dQ/da; only its gradient is meaningful.

    Args:
      a_t: `[D]`, pi(x): takes the gradient.
      dqda_t: `[D]`, gradient of the critic's mean at that action; takes none.
      dqda_clipping: > 0, a longer dQ/da is scaled down to this Euclidean norm; None for no limit.

    Returns:
      A scalar loss `[]`.
    """
    assert_rank(1, a_t=a_t, dqda_t=dqda_t)
    chex.assert_equal_shape([a_t, dqda_t])
    if dqda_clipping is not None:
        dqda_t = dqda_t * dqda_clipping / jnp.maximum(jnp.linalg.norm(dqda_t), dqda_clipping)
    return jnp.sum(0.5 * jnp.square(_stop(dqda_t + a_t) - a_t))


def _log_density(values: Array, log_weights: Array, means: Array, scales: Array) -> Array:
    """Of a mixture of Gaussians, `[K]` each, at values `[n]`: `[n]`."""
    squares = jnp.square((values[:, None] - means) / scales)
    log_densities = -0.5 * squares - (0.5 * np.log(2 * np.pi) + jnp.log(scales))
    return jax.nn.logsumexp(log_densities + log_weights, axis=1)
