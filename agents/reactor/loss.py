"""Reactor's loss: distributional Retrace for the values, beta-leave-one-out for the policy.

`B` denotes the batch, `T` the steps of a sequence, `A` the actions, `N` the atoms. Section and
equation numbers are those of Gruslys et al. 2018.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import losses
from ...datatypes import Row, Sample
from ...networks import ReactorOutput, RecurrentNetwork
from .. import recurrent, sequences
from ..sequences import off_policyness
from .config import Config


class Steps(NamedTuple):
    """Losses and other numbers of the source steps of one sequence, each `[T]`.

    `trace` and `ratio` (pi / mu) are at the destinations. `support` says whether the atoms suit
    the returns.
    """

    critic_loss: jax.Array
    policy_loss: jax.Array
    entropy: jax.Array
    priority: jax.Array
    value: jax.Array
    trace: jax.Array
    ratio: jax.Array
    support: dict[str, jax.Array]


def loss(
    params: Any,
    target_params: Any,
    sample: Sample,
    *,
    config: Config,
    network: RecurrentNetwork,
    atoms: jax.Array,
) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
    """The weighted mean over a batch of sequences.

    Args:
      params: of the online network.
      target_params: of the target network; take no gradient.
      sample: B sequences.
      config: hyper-parameters.
      network: its outputs are `ReactorOutput`s.
      atoms: `[N]`, values of the return's atoms.

    Returns:
      The loss `[]`; the priorities `[B]` and a dictionary of metrics `[]`.
    """
    of_sequence = functools.partial(steps, config=config, network=network, atoms=atoms)
    each = jax.vmap(of_sequence, in_axes=(None, None, 0, 0))(
        params, target_params, sample.rows, sample.mask
    )
    valid = sequences.valid_steps(sample.rows, sample.mask)
    total = each.critic_loss + each.policy_loss - config.entropy_cost * each.entropy
    weighted = sample.weights[:, None] * jnp.where(valid, total, 0.0)
    mean = functools.partial(sequences.masked_mean, valid=valid)
    metrics = {
        "critic_loss": mean(each.critic_loss),
        "policy_loss": mean(each.policy_loss),
        "policy_entropy": mean(each.entropy),
        "value": mean(each.value),
        "trace_coefficient": mean(each.trace),
        "largest_weight": jnp.max(sample.weights),
        **{name: mean(values) for name, values in each.support.items()},
        **off_policyness(each.ratio, sequences.acted(sample.rows, sample.mask)),
    }
    return jnp.mean(weighted), (mean(each.priority, axis=1), metrics)


def steps(
    params: Any,
    target_params: Any,
    rows: Row,
    mask: jax.Array,
    *,
    config: Config,
    network: RecurrentNetwork,
    atoms: jax.Array,
) -> Steps:
    """The steps of one sequence.

    Args:
      params: of the online network.
      target_params: of the target network.
      rows: `[T + 1, ...]`.
      mask: bool `[T + 1]`, False for padding.
      config: hyper-parameters.
      network: its outputs are `ReactorOutput`s.
      atoms: `[N]`, values of the return's atoms.
    """
    online, target = _unroll(params, target_params, rows, config=config, network=network)
    c_t, ratio = _trace_coefficients(target, rows, mask, config=config)
    critic_loss, returns, priority = _critic(online, target, rows, c_t, config=config, atoms=atoms)
    q = action_values(online, config=config, atoms=atoms)
    policy_losses = jax.vmap(functools.partial(_policy_loss, config=config))(
        online.policy, rows.extras["mu"][:-1], q, rows.action[:-1], returns
    )
    entropy = jax.vmap(losses.policy_entropy)(online.policy)
    values = jnp.sum(online.policy * q, axis=-1)
    support = {}
    if config.distributional:
        support = _support_metrics(online, target, rows, config=config, atoms=atoms)
    return Steps(critic_loss, policy_losses, entropy, priority, values, c_t, ratio, support)


def action_values(output: ReactorOutput, *, config: Config, atoms: jax.Array) -> jax.Array:
    """The means of the return distributions, or the values themselves: `[T, A]`."""
    if config.distributional:
        return jax.nn.softmax(output.logits) @ atoms
    return output.logits[..., 0]


def _unroll(
    params: Any, target_params: Any, rows: Row, *, config: Config, network: RecurrentNetwork
) -> tuple[ReactorOutput, ReactorOutput]:
    """Online outputs at rows 0 .. T-1, target outputs at rows 1 .. T.

    The target network is unrolled over row 0 too, so that both recurrent states include the same
    frames. The paper unrolls it over frames 2 to 33 only.
    """
    stored = config.initial_state == "stored"
    memory = recurrent.initial_memory(rows, network=network, stored=stored)
    sources = rows.observation[:-1], rows.is_first[:-1]
    online, _ = network.unroll(params, *sources, memory)
    target, _ = network.unroll(target_params, rows.observation, rows.is_first, memory)
    return online, jax.tree.map(lambda x: x[1:], target)


def _trace_coefficients(
    target: ReactorOutput, rows: Row, mask: jax.Array, *, config: Config
) -> tuple[jax.Array, jax.Array]:
    """Retrace's c and pi / mu at the destination steps, `[T]`; c is 0 where no action follows."""
    acted = sequences.acted(rows, mask)
    pi_a = sequences.taken(target.policy, rows.action[1:])
    mu_a = jnp.where(acted, sequences.taken(rows.extras["mu"][1:], rows.action[1:]), 1.0)
    return acted * losses.retrace_coefficients(pi_a, mu_a, config.retrace_lambda), pi_a / mu_a


def _critic(
    online: ReactorOutput,
    target: ReactorOutput,
    rows: Row,
    c_t: jax.Array,
    *,
    config: Config,
    atoms: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Loss, return and priority of each source step, `[T]`; `target` is at destinations."""
    a_t = rows.action[1:]
    r_t, discount_t = _rewards_and_discounts(rows, config)
    logits = sequences.taken(online.logits, rows.action[:-1])  # [T, N]
    if config.distributional:
        probs_t = jax.nn.softmax(target.logits)
        q_star = losses.distributional_off_policy_target(
            atoms, probs_t, a_t, r_t, discount_t, target.policy, c_t
        )
        cross_entropy = jax.vmap(losses.categorical_cross_entropy)(q_star, logits)
        error = jax.vmap(losses.total_variation)(q_star, jax.nn.softmax(logits))
        return cross_entropy, q_star @ atoms, error
    q_t = action_values(target, config=config, atoms=atoms)
    returns = losses.expected_off_policy_return(q_t, a_t, r_t, discount_t, target.policy, c_t)
    td_error = returns - logits[:, 0]
    return 0.5 * jnp.square(td_error), returns, jnp.abs(td_error)


def _rewards_and_discounts(rows: Row, config: Config) -> tuple[jax.Array, jax.Array]:
    """Of the destination steps, `[T]` each."""
    rewards = sequences.rewards(rows, config.max_abs_reward)
    return rewards, sequences.discounts(rows, config.discount)


def _support_metrics(
    online: ReactorOutput, target: ReactorOutput, rows: Row, *, config: Config, atoms: jax.Array
) -> dict[str, jax.Array]:
    """Predicted mass of the end atoms, and clipped mass of one-step targets, `[T]` each."""
    probs = jax.nn.softmax(sequences.taken(online.logits, rows.action[:-1]))
    probs_t = jnp.einsum("ta,tan->tn", target.policy, jax.nn.softmax(target.logits))
    r_t, discount_t = _rewards_and_discounts(rows, config)
    below, above = jax.vmap(losses.clipped_mass, in_axes=(None, 0, 0, 0))(
        atoms, r_t, discount_t, probs_t
    )
    return {
        "mass_at_vmin": probs[:, 0],
        "mass_at_vmax": probs[:, -1],
        "clipped_below_vmin": below,
        "clipped_above_vmax": above,
    }


def _policy_loss(
    pi: jax.Array, mu: jax.Array, q: jax.Array, a: jax.Array, return_: jax.Array, *, config: Config
) -> jax.Array:
    """The chosen estimator's loss at one source step, `[]`; `pi`, `mu` and `q` are `[A]`."""
    cap = config.policy_gradient_cap
    v = jax.lax.stop_gradient(pi @ q)
    if config.policy_gradient == "beta_loo":
        return losses.beta_loo_loss(pi, q, a, return_, losses.truncated_beta(mu[a], cap))
    if config.policy_gradient == "tislr":
        return losses.tislr_loss(pi, mu, q, v, a, return_, cap)
    return losses.islr_loss(pi, mu[a], v, a, return_)
