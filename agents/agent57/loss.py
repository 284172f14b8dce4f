"""Agent57's loss of the value networks (appendix E), on a batch of sequences.

`B` denotes the batch, `T + 1` the rows of a sequence, `A` the actions. Value networks have the
names of `HEADS`.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import losses
from ...datatypes import Row, Sample
from ...networks import R2D2Inputs, RecurrentNetwork
from .. import sequences
from ..exploration import epsilon_greedy_probabilities
from ..sequences import off_policyness
from .config import Config
from .policies import HEADS, combine, make_arms, rewards, value_transform

Values = dict[str, jax.Array]


class _Steps(NamedTuple):
    """The source steps of one sequence: `[T]` each, by network where it is a dictionary.

    `trace` and `ratio` (pi / mu) are at the destinations.
    """

    td_errors: Values
    values: Values
    mixed_error: jax.Array
    trace: jax.Array
    ratio: jax.Array
    valid: jax.Array


def value_loss(
    params: Any,
    target_params: Any,
    sample: Sample,
    intrinsic_rewards: jax.Array,
    *,
    config: Config,
    network: RecurrentNetwork,
) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
    """The loss of all value networks (Agent57, appendix E).

    sum_s (Q(x_s, a_s, j) - T Q(x_s, a_s, j))^2 for each network, with its own reward and its own
    target network. All share one target policy, greedy in the mix of the online networks. Summed
    over the steps of a sequence; the mean, weighted, over the batch. No network's loss depends on
    another's parameters, so the gradient of the sum is each network's own.

    Args:
      params: parameters of the value networks, by name; they take the gradient.
      target_params: parameters of the target networks, by name.
      sample: B sequences.
      intrinsic_rewards: `[B, T + 1]`, of the targets; the network reads those of the actor.
      config: hyper-parameters.
      network: the value network.

    Returns:
      The loss `[]`, and (priorities `[B]`, metrics).
    """
    steps = functools.partial(_steps, params, target_params, config=config, network=network)
    each = jax.vmap(steps)(sample.rows, sample.mask, intrinsic_rewards)
    priorities = jax.vmap(losses.sequence_priority, in_axes=(0, 0, None))(
        each.mixed_error, each.valid, config.priority_eta
    )
    total, metrics = jnp.zeros(()), {}
    for name in HEADS[config.values]:
        squares = jnp.where(each.valid, jnp.square(each.td_errors[name]), 0.0)
        total += jnp.mean(sample.weights * jnp.sum(squares, axis=1))
        metrics[f"{name}_loss"] = sequences.masked_mean(squares, each.valid)
        metrics[f"{name}_value"] = sequences.masked_mean(each.values[name], each.valid)
    extras, weights = sample.rows.extras, jnp.asarray(make_arms(config).weights)
    metrics |= {
        "trace_coefficient": sequences.masked_mean(each.trace, each.valid),
        "intrinsic_reward": sequences.masked_mean(intrinsic_rewards[:, 1:], each.valid),
        "intrinsic_weight": jnp.mean(weights[extras["arm"][:, 0]]),
        "priority": jnp.mean(priorities),
    }
    if config.target != "double_q":  # which uses no ratios
        acted = sequences.acted(sample.rows, sample.mask) & each.valid
        metrics |= off_policyness(each.ratio, acted)
    return total, (priorities, metrics)


def _steps(
    params: Any,
    target_params: Any,
    rows: Row,
    mask: jax.Array,
    intrinsic_rewards: jax.Array,
    *,
    config: Config,
    network: RecurrentNetwork,
) -> _Steps:
    """TD errors of one sequence `[T + 1, ...]`."""
    arms, heads, arm = make_arms(config), HEADS[config.values], rows.extras["arm"][0]
    weight, memory = jnp.asarray(arms.weights)[arm], rows.extras["memory"]
    q, q_target = (
        {
            name: _unroll(part[name], rows, memory[name], config=config, network=network)
            for name in heads
        }
        for part in (params, target_params)
    )
    mixed_t = jax.lax.stop_gradient(combine(config, q, weight))[1:]
    c_t, ratio = _traces(mixed_t, rows, mask, config)
    r_t = rewards(config, sequences.rewards(rows), intrinsic_rewards[1:], weight)
    discount_t = sequences.discounts(rows, jnp.asarray(arms.discounts)[arm])
    taken = {name: sequences.taken(q[name][:-1], rows.action[:-1]) for name in heads}
    errors = {
        name: _targets(q_target[name][1:], mixed_t, rows, r_t[name], discount_t, c_t, config)
        - taken[name]
        for name in heads
    }
    mixed = errors[heads[0]] + sum(weight * errors[name] for name in heads[1:])
    return _Steps(errors, taken, mixed, c_t, ratio, _valid_steps(rows, mask, config))


def _unroll(
    params: Any, rows: Row, memory: Any, *, config: Config, network: RecurrentNetwork
) -> jax.Array:
    """Values `[T + 1, A]`; no gradient flows into the memory after the burn-in."""
    inputs = R2D2Inputs(
        observation=rows.observation,
        previous_action=rows.extras["previous_action"],
        reward=rows.reward,
        intrinsic_reward=rows.extras["intrinsic_reward"],
        arm=rows.extras["arm"],
    )
    if not config.burn_in:
        return network.unroll(params, inputs, rows.is_first, memory)[0]
    warm = jax.tree.map(lambda x: x[: config.burn_in], (inputs, rows.is_first))
    rest = jax.tree.map(lambda x: x[config.burn_in :], (inputs, rows.is_first))
    before, memory = network.unroll(params, warm[0], warm[1], memory)
    after, _ = network.unroll(params, rest[0], rest[1], jax.lax.stop_gradient(memory))
    return jnp.concatenate([before, after])


def _traces(
    mixed_t: jax.Array, rows: Row, mask: jax.Array, config: Config
) -> tuple[jax.Array, jax.Array]:
    """Trace coefficients and pi / mu at the destination steps `[T]`; c is 0 if no action follows.

    The n-step return needs no ratios; they are 1 then.
    """
    acted = sequences.acted(rows, mask)
    if config.target == "double_q":
        return acted.astype(jnp.float32), jnp.ones(acted.shape)
    pi_t = epsilon_greedy_probabilities(mixed_t, config.target_epsilon)
    mu_a = jnp.where(acted, rows.extras["mu"][1:], 1.0)
    pi_a = sequences.taken(pi_t, rows.action[1:])
    return acted * losses.retrace_coefficients(pi_a, mu_a, config.retrace_lambda), pi_a / mu_a


def _targets(
    q_t: jax.Array,
    mixed_t: jax.Array,
    rows: Row,
    r_t: jax.Array,
    discount_t: jax.Array,
    c_t: jax.Array,
    config: Config,
) -> jax.Array:
    """Targets `[T]` of one network; `q_t` `[T, A]` are its target network's values."""
    transform = value_transform(config)
    if config.target == "double_q":
        return losses.transformed_n_step_double_q_return(
            q_t, mixed_t, r_t, discount_t, c_t, config.n_step, transform
        )
    pi_t = epsilon_greedy_probabilities(mixed_t, config.target_epsilon)
    return losses.transformed_off_policy_return(
        q_t, rows.action[1:], r_t, discount_t, pi_t, c_t, transform
    )


def _valid_steps(rows: Row, mask: jax.Array, config: Config) -> jax.Array:
    """The source steps that are learned from: those after the burn-in, `[T]`.

    All steps if the sequence begins with its episode: the memory is then exact without burn-in.
    """
    is_trace = jnp.arange(mask.shape[0] - 1) >= config.burn_in
    return sequences.valid_steps(rows, mask) & (is_trace | rows.is_first[0])
