"""Masks, means, rewards, ratios and N-step transitions of sequences; states of their actors.

A sequence has rows 0 .. T. Step i, from 0 to T - 1, leads from its source, row i, to its
destination, row i + 1. Arrays are `[..., T + 1]` on rows and `[..., T]` on steps, where `...`
stands for any leading axes: none under `jax.vmap`, `B` for a batch. A `mask` is bool
`[..., T + 1]`, False for padding.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import losses
from ..datatypes import Row, Sample

MEMORY = "memory"  # the extra of actors that store it before a row's observation; may be empty


class ActorState(NamedTuple):
    """State of an actor between time steps."""

    key: jax.Array  # draws actions
    memory: Any  # recurrent state before the next observation; empty without memory


def valid_steps(rows: Row, mask: jax.Array) -> jax.Array:
    """The steps of which losses are made: bool `[..., T]`.

    The step from an episode's last row to the next episode's first row has no action.
    """
    return mask[..., 1:] & ~rows.is_last[..., :-1]


def acted(rows: Row, mask: jax.Array) -> jax.Array:
    """Whether an action was executed at each step's destination: bool `[..., T]`.

    False at the ends of episodes and on padding. There traces are cut, and the row's action and its
    probability mean nothing.
    """
    return mask[..., 1:] & ~rows.is_last[..., 1:]


def rewards(rows: Row, max_abs_reward: float | None = None) -> jax.Array:
    """r_t of each step `[..., T]`, which arrived at its destination, perhaps clipped."""
    r_t = rows.reward[..., 1:]
    return r_t if max_abs_reward is None else jnp.clip(r_t, -max_abs_reward, max_abs_reward)


def discounts(rows: Row, discount: float | jax.Array) -> jax.Array:
    """discount_t of each step `[..., T]`: `discount` (gamma), or 0 on termination."""
    return discount * rows.discount[..., 1:]


def taken(values: jax.Array, actions: jax.Array) -> jax.Array:
    """The entries `[T, ...]` of `[T, A, ...]` of the actions taken `[T]`, not checked."""
    return jax.vmap(lambda values, action: values[action])(values, actions)


def masked_mean(x: jax.Array, valid: jax.Array, axis: int | None = None) -> jax.Array:
    """The mean of the valid entries of an axis, or of all; 0 of none. Others may be NaN."""
    return jnp.sum(jnp.where(valid, x, 0.0), axis) / jnp.maximum(jnp.sum(valid, axis), 1)


def off_policyness(ratios: jax.Array, acted: jax.Array) -> dict[str, jax.Array]:
    """Metrics of importance ratios rho = pi(a|x) / mu(a|x), of the policy pi and the behaviour mu.

    * `mean_ratio`: the mean of rho. Its expectation under mu is 1.
    * `cut_traces`: share of the steps with rho < 1, at which Retrace cuts a trace, wholly or in
      part (Munos et al. 2016, section 3: c = lambda min(1, rho)).
    * `effective_sample_share`: (sum rho)^2 / (n sum rho^2) of n steps, in [1/n, 1]; 1 if all ratios
      are equal (the effective sample size of Kish 1965, divided by n).

    Ratios above 1e30 count as that; those where no action was taken may be NaN. All metrics are 0
    if there is no action. No gradient flows through them.
    """
    # Sums of 1e30, and its inverse, are normal numbers of float32.
    ratios = jnp.minimum(jax.lax.stop_gradient(jnp.where(acted, ratios, 0.0)), 1e30)
    # Divided by the largest, no square overflows.
    largest = jnp.max(ratios)
    scaled = ratios / jnp.where(largest > 0, largest, 1.0)
    squares = jnp.maximum(jnp.sum(acted), 1) * jnp.sum(jnp.square(scaled))
    share = jnp.square(jnp.sum(scaled)) / jnp.where(squares > 0, squares, 1.0)
    return {
        "mean_ratio": masked_mean(ratios, acted),
        "cut_traces": masked_mean((ratios < 1).astype(jnp.float32), acted),
        "effective_sample_share": share,
    }


class NStepTransitions(NamedTuple):
    """The first decision of each sequence and its N-step outcome."""

    observation_tm1: jax.Array  # `[B, ...]`, of the first row
    action_tm1: jax.Array  # `[B, ...]`, chosen there
    return_: jax.Array  # `[B]`, the discounted sum of up to N rewards
    discount: jax.Array  # `[B]`, of the bootstrap: 0 after a termination
    observation_t: jax.Array  # `[B, ...]`, to bootstrap from: the last one that is no padding


def n_step_transitions(sample: Sample, discount: float) -> NStepTransitions:
    """N-step transitions of sequences `[B, N + 1, ...]` of one episode each (D4PG, section 3).

    A sequence that meets the end of its episode is shorter than N: after a termination nothing is
    bootstrapped; after a truncation the last observation of the episode is bootstrapped from. The
    first row must not be a last row.
    """
    rows, mask = sample.rows, sample.mask
    # Padding adds no reward and does not discount the bootstrap.
    r_t = jnp.where(mask[:, 1:], rows.reward[:, 1:], 0.0)
    discount_t = jnp.where(mask[:, 1:], discount * rows.discount[:, 1:], 1.0)
    return_, bootstrap_discount = jax.vmap(losses.n_step_return)(r_t, discount_t)
    last = jnp.sum(mask, axis=1) - 1
    observation_t = jax.vmap(lambda observations, t: observations[t])(rows.observation, last)
    return NStepTransitions(
        rows.observation[:, 0], rows.action[:, 0], return_, bootstrap_discount, observation_t
    )
