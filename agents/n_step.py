"""N-step transitions from sampled sequences: the data of one-decision losses (DQN, D4PG).

`B` denotes the batch; a sequence of `N + 1` rows holds N transitions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .. import losses
from ..datatypes import Sample


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
