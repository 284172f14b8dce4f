"""Agent57's losses on a batch of sequences: each value's own, and those of the other networks.

`B` denotes the batch, `T + 1` the rows of a sequence, `A` the actions. Value networks go by the
names of `HEADS`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import losses
from ...datatypes import Row, Sample
from ...networks import Agent57Networks, R2D2Inputs, RecurrentNetwork
from ..exploration import epsilon_greedy_probabilities
from . import auxiliary, bandit
from .bandit import BanditState
from .config import Config
from .policies import HEADS, combine, make_arms, rewards, value_transform

Values = dict[str, jax.Array]
ValueLoss = Callable[[Any, Any, Sample], tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]]
AuxiliaryLoss = Callable[[Any, Any, Sample], tuple[jax.Array, dict[str, jax.Array]]]


class _Steps(NamedTuple):
    """The source steps of one sequence: `[T]` each, by head where it is a dictionary."""

    td_errors: Values
    values: Values
    mixed_error: jax.Array
    trace: jax.Array
    valid: jax.Array


def make_value_loss(config: Config, network: RecurrentNetwork) -> ValueLoss:
    """The loss of all value networks (Agent57, appendix E).

    sum_s (Q(x_s, a_s, j) - T Q(x_s, a_s, j))^2 for each network with its own reward and its own
    target network, all under one target policy, greedy in the mix of the online networks. Summed
    over a sequence's steps; the mean, weighted, over the batch. No network's loss depends on
    another's parameters, so one gradient is each network's own.

    Args:
      config: hyper-parameters.
      network: the value network.

    Returns:
      `(params, target_params, sample) -> (loss [], (priorities [B], metrics))`.
    """
    arms, heads, transform = make_arms(config), HEADS[config.values], value_transform(config)

    def unroll(params: Any, rows: Row, memory: Any) -> jax.Array:
        """Values `[T + 1, A]`; the memory behind the burn-in takes no gradient."""
        extras = rows.extras
        inputs = R2D2Inputs(
            observation=rows.observation,
            previous_action=extras["previous_action"],
            reward=rows.reward,
            intrinsic_reward=extras["intrinsic_reward"],
            arm=extras["arm"],
        )
        if not config.burn_in:
            return network.unroll(params, inputs, rows.is_first, memory)[0]
        warm = jax.tree.map(lambda x: x[: config.burn_in], (inputs, rows.is_first))
        rest = jax.tree.map(lambda x: x[config.burn_in :], (inputs, rows.is_first))
        before, memory = network.unroll(params, warm[0], warm[1], memory)
        after, _ = network.unroll(params, rest[0], rest[1], jax.lax.stop_gradient(memory))
        return jnp.concatenate([before, after])

    def target(
        q_t: jax.Array, mixed_t: jax.Array, rows: Row, r_t: jax.Array, c_t: jax.Array, arm: Any
    ) -> jax.Array:
        """One network's targets `[T]`."""
        discount_t = jnp.asarray(arms.discounts)[arm] * rows.discount[1:]
        if config.target == "double_q":
            return losses.transformed_n_step_double_q_return(
                q_t, mixed_t, r_t, discount_t, c_t, config.n_step, transform
            )
        pi_t = epsilon_greedy_probabilities(mixed_t, config.target_epsilon)
        return losses.transformed_off_policy_return(
            q_t, rows.action[1:], r_t, discount_t, pi_t, c_t, transform
        )

    def traces(mixed_t: jax.Array, rows: Row, mask: jax.Array) -> jax.Array:
        """Trace coefficients at the destination steps `[T]`: 0 where no action follows."""
        acted = mask[1:] & ~rows.is_last[1:]
        if config.target == "double_q":
            return acted.astype(jnp.float32)
        pi_t = epsilon_greedy_probabilities(mixed_t, config.target_epsilon)
        mu_a = jnp.where(acted, rows.extras["mu"][1:], 1.0)
        c_t = losses.retrace_coefficients(
            _taken(pi_t, rows.action[1:]), mu_a, config.retrace_lambda
        )
        return acted * c_t

    def valid_steps(rows: Row, mask: jax.Array) -> jax.Array:
        """Source steps that were acted upon and are not there to warm up, `[T]`."""
        is_trace = jnp.arange(mask.shape[0] - 1) >= config.burn_in
        return mask[1:] & ~rows.is_last[:-1] & (is_trace | rows.is_first[0])

    def steps(params: Any, target_params: Any, rows: Row, mask: jax.Array) -> _Steps:
        arm = rows.extras["arm"][0]
        weight = jnp.asarray(arms.weights)[arm]
        memory = rows.extras["memory"]
        q = {name: unroll(params[name], rows, memory[name]) for name in heads}
        q_target = {name: unroll(target_params[name], rows, memory[name]) for name in heads}
        mixed_t = jax.lax.stop_gradient(combine(config, q, weight))[1:]
        c_t = traces(mixed_t, rows, mask)
        r_t = rewards(config, rows.reward[1:], rows.extras["intrinsic_reward"][1:], weight)
        taken = {name: _taken(q[name][:-1], rows.action[:-1]) for name in heads}
        errors = {
            name: target(q_target[name][1:], mixed_t, rows, r_t[name], c_t, arm) - taken[name]
            for name in heads
        }
        mixed = errors[heads[0]] + sum(weight * errors[name] for name in heads[1:])
        return _Steps(errors, taken, mixed, c_t, valid_steps(rows, mask))

    def loss(params: Any, target_params: Any, sample: Sample) -> Any:
        each = jax.vmap(steps, in_axes=(None, None, 0, 0))(
            params, target_params, sample.rows, sample.mask
        )
        priorities = jax.vmap(losses.sequence_priority, in_axes=(0, 0, None))(
            each.mixed_error, each.valid, config.priority_eta
        )

        def mean(x: jax.Array) -> jax.Array:
            total = jnp.maximum(jnp.sum(each.valid), 1)
            return jnp.sum(jnp.where(each.valid, x, 0.0)) / total

        total, metrics = jnp.zeros(()), {}
        for name in heads:
            squares = jnp.where(each.valid, jnp.square(each.td_errors[name]), 0.0)
            total += jnp.mean(sample.weights * jnp.sum(squares, axis=1))
            metrics[f"{name}_loss"] = mean(squares)
            metrics[f"{name}_value"] = mean(each.values[name])
        metrics["trace_coefficient"] = mean(each.trace)
        metrics["intrinsic_reward"] = mean(sample.rows.extras["intrinsic_reward"][:, 1:])
        metrics["intrinsic_weight"] = jnp.mean(
            jnp.asarray(arms.weights)[sample.rows.extras["arm"][:, 0]]
        )
        metrics["priority"] = jnp.mean(priorities)
        return total, (priorities, metrics)

    return loss


def make_auxiliary_loss(config: Config, networks: Agent57Networks) -> AuxiliaryLoss:
    """The losses of embedding, classifier and predictor, on the last frames of each sequence.

    Args:
      config: hyper-parameters.
      networks: the agent's.

    Returns:
      `(params, random_params, sample) -> (loss [], metrics)`; `params` is a dictionary of
      `embedding`, `classifier` and `predictor`.
    """

    def each(params: Any, random: Any, rows: Row, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        after, exists = auxiliary.last_steps(mask, config.auxiliary_frames)
        before, seen = rows.observation[after - 1], rows.observation[after]
        embedded = (networks.embedding.apply(params["embedding"], x) for x in (before, seen))
        logits = networks.classifier.apply(params["classifier"], *embedded)
        action = rows.action[after - 1]
        predicted = networks.novelty.apply(params["predictor"], seen)
        return (
            auxiliary.inverse_dynamics_loss(logits, action, exists),
            auxiliary.distillation_loss(predicted, networks.novelty.apply(random, seen), exists),
        )

    def loss(params: Any, random: Any, sample: Sample) -> Any:
        dynamics, distillation = jax.vmap(each, in_axes=(None, None, 0, 0))(
            params, random, sample.rows, sample.mask
        )
        metrics = {"embedding_loss": jnp.mean(dynamics), "novelty_loss": jnp.mean(distillation)}
        return metrics["embedding_loss"] + metrics["novelty_loss"], metrics

    return loss


def add_episodes(book: BanditState, sample: Sample) -> BanditState:
    """A bandit with the episodes whose ends are in a batch: arm and extrinsic return of each.

    Args:
      book: before.
      sample: B sequences.
    """
    is_end = sample.rows.is_last & sample.mask
    returns = jnp.sum(jnp.where(is_end, sample.rows.extras["extrinsic_return"], 0.0), axis=1)

    def add(book: BanditState, episode: Any) -> tuple[BanditState, None]:
        arm, paid, ended = episode
        new = bandit.update(book, arm, paid)
        return jax.tree.map(lambda x, y: jnp.where(ended, x, y), new, book), None

    episodes = sample.rows.extras["arm"][:, 0], returns, jnp.any(is_end, axis=1)
    return jax.lax.scan(add, book, episodes)[0]


def _taken(values: jax.Array, actions: jax.Array) -> jax.Array:
    """`[T, A]`, `[T]` -> `[T]`."""
    return jnp.take_along_axis(values, actions[:, None], axis=1)[:, 0]
