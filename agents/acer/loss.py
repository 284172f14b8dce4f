"""ACER's loss: an estimator's gradients of the policy, projected, and the critic's losses.

`B` denotes the batch, `T` the steps of a segment, `D` the size of the policy's statistics. Section
and equation numbers are those of Wang et al. 2017.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...datatypes import Row, Sample
from ...networks import RecurrentNetwork
from .. import recurrent, sequences
from ..sequences import off_policyness
from . import estimators
from .config import Config
from .policies import Policy


class Steps(NamedTuple):
    """Losses and other numbers of the source steps of one segment, each `[T]`.

    `ratio` (pi / mu) is at the destinations.
    """

    critic_loss: jax.Array
    policy_loss: jax.Array
    error: jax.Array
    ratio: jax.Array
    metrics: dict[str, jax.Array]


def loss(
    params: Any,
    average_params: Any,
    sample: Sample,
    keys: jax.Array,
    *,
    config: Config,
    policy: Policy,
    network: RecurrentNetwork,
    stores_memory: bool,
) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
    """The weighted mean over a batch of segments.

    Args:
      params: `{"network": ..., "advantage": ...}`, the second for continuous actions only.
      average_params: of the average policy's network.
      sample: B segments.
      keys: PRNG keys `[B]`.
      config: hyper-parameters.
      policy: the kind of policy.
      network: the agent's.
      stores_memory: whether rows hold the network's recurrent state.

    Returns:
      The loss `[]`; the priorities `[B]` and a dictionary of metrics `[]`.
    """
    of_segment = functools.partial(
        steps, config=config, policy=policy, network=network, stores_memory=stores_memory
    )
    each = jax.vmap(of_segment, in_axes=(None, None, 0, 0, 0))(
        params, average_params, sample.rows, sample.mask, keys
    )
    valid = sequences.valid_steps(sample.rows, sample.mask)
    total = config.critic_cost * each.critic_loss + each.policy_loss
    weighted = sample.weights[:, None] * jnp.where(valid, total, 0.0)
    mean = functools.partial(sequences.masked_mean, valid=valid)
    metrics = {name: mean(values) for name, values in each.metrics.items()}
    metrics |= {"critic_loss": mean(each.critic_loss)}
    metrics |= off_policyness(each.ratio, sequences.acted(sample.rows, sample.mask))
    return jnp.mean(weighted), (mean(jnp.abs(each.error), axis=1), metrics)


def steps(
    params: Any,
    average_params: Any,
    rows: Row,
    mask: jax.Array,
    key: jax.Array,
    *,
    config: Config,
    policy: Policy,
    network: RecurrentNetwork,
    stores_memory: bool,
) -> Steps:
    """The steps of one segment: rows `[T + 1, ...]`, mask `[T + 1]`, and a PRNG key."""
    memory = recurrent.initial_memory(rows, network=network, stored=stores_memory)
    read = (rows.observation, rows.is_first, memory)
    output, _ = network.unroll(params["network"], *read)
    keys = jax.random.split(key, mask.shape[0])
    timed = rows._replace(extras={name: rows.extras[name] for name in policy.extras})
    estimates = jax.vmap(policy.estimates, in_axes=(None, 0, 0, 0, 0))(
        params.get("advantage"), keys, output, timed, mask & ~rows.is_last
    )
    phi = jax.lax.stop_gradient(output.policy[:-1])
    estimator = estimators.acer if config.estimator == "acer" else estimators.tis
    terms = estimator(phi, estimates, timed, mask, policy=policy, config=config)
    gradients = terms.gradients
    gradients += config.entropy_cost * jax.vmap(jax.grad(policy.entropy))(phi)
    rho = jnp.exp(estimates.log_rho[:-1])
    metrics = {
        "policy_entropy": jax.vmap(policy.entropy)(phi),
        "value": estimates.v[:-1],
        "importance_ratio": jnp.minimum(rho, config.truncation),
        "truncated": (rho > config.truncation).astype(jnp.float32),
    }
    if config.trust_region:
        average = network.unroll(average_params, *read)[0].policy[:-1]
        free = gradients
        gradients = estimators.constrain(free, average, phi, policy=policy, delta=config.delta)
        metrics["kl_to_average"] = jax.vmap(policy.kl)(average, phi)
        metrics["constrained"] = jnp.any(free != gradients, axis=-1).astype(jnp.float32)
    # The gradient of this loss is minus `gradients`, back-propagated through the network.
    policy_loss = -jnp.sum(jax.lax.stop_gradient(gradients) * output.policy[:-1], axis=-1)
    ratio = jnp.exp(estimates.log_rho[1:])
    return Steps(terms.critic_losses, policy_loss, terms.errors, ratio, metrics)
