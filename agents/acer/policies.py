"""What ACER must know of a kind of policy: categorical or Gaussian.

Unbatched. A policy's statistics phi are `[D]`: the probabilities, or the mean. A sequence has rows
0 .. T.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from dm_env import specs

from ... import losses
from ...datatypes import Row
from ...networks import CategoricalOutput, GaussianOutput


class Estimates(NamedTuple):
    """What the networks say of one row, or, stacked, of a sequence's rows.

    Attributes:
      log_rho: `[]`, log of pi / mu of the action taken.
      q: `[]`, its value. Takes gradients.
      v: `[]`, the state's value. Takes gradients.
      others: what `Policy.gradient` wants besides, of actions not taken.
    """

    log_rho: jax.Array
    q: jax.Array
    v: jax.Array
    others: Any


class Policy(NamedTuple):
    """A kind of policy.

    Attributes:
      extras: what actors store with each row, besides a memory.
      draw: `(key, phi) -> (action, extras)`.
      greedy: `phi -> action`.
      log_prob: `(phi, Row) -> []`, of the action that the row says was taken.
      entropy: `phi -> []`, up to a constant.
      kl: `(phi_average, phi) -> []`, of the first from the second.
      estimates: `(params, key, output, Row, acted []) -> Estimates` of one row. Where it was not
        acted, the row's action means nothing, and the ratio is 1.
      gradient: `(phi, Estimates, Row, return_ []) -> [D]`, ACER's, before any projection.
      value_loss: `(return_, q, v, rho) -> []`, what V learns besides what Q does.
      root: Retrace's ratios are taken to this power.
      graded_by_opc: whether the policy is graded by Q_opc, not Retrace.
    """

    extras: dict[str, jax.ShapeDtypeStruct]
    draw: Callable[[jax.Array, jax.Array], tuple[jax.Array, dict[str, jax.Array]]]
    greedy: Callable[[jax.Array], jax.Array]
    log_prob: Callable[[jax.Array, Row], jax.Array]
    entropy: Callable[[jax.Array], jax.Array]
    kl: Callable[[jax.Array, jax.Array], jax.Array]
    estimates: Callable[[Any, jax.Array, Any, Row, jax.Array], Estimates]
    gradient: Callable[[jax.Array, Estimates, Row, jax.Array], jax.Array]
    value_loss: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]
    root: float
    graded_by_opc: bool


def categorical(actions: specs.DiscreteArray, *, truncation: float) -> Policy:
    """A policy over A discrete actions, whose statistics are their probabilities.

    V is the mean of Q over the policy, so it learns nothing of its own.
    """
    num_actions = int(actions.num_values)

    def log(pi: jax.Array) -> jax.Array:
        return jnp.log(jnp.maximum(pi, jnp.finfo(pi.dtype).tiny))

    def draw(key: jax.Array, pi: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        return jax.random.categorical(key, log(pi)).astype(jnp.int32), {"mu": pi}

    def greedy(pi: jax.Array) -> jax.Array:
        return jnp.argmax(pi).astype(jnp.int32)

    def log_prob(pi: jax.Array, row: Row) -> jax.Array:
        return log(pi)[row.action]

    def entropy(pi: jax.Array) -> jax.Array:
        return losses.policy_entropy(jnp.maximum(pi, jnp.finfo(pi.dtype).tiny))

    def kl(average: jax.Array, pi: jax.Array) -> jax.Array:
        return jnp.sum(average * (log(average) - log(pi)))

    def estimates(
        params: Any, key: jax.Array, output: CategoricalOutput, row: Row, acted: jax.Array
    ) -> Estimates:
        del params, key
        log_ratio = log_prob(output.policy, row) - log(row.extras["mu"])[row.action]
        v = jax.lax.stop_gradient(output.policy) @ output.q
        return Estimates(jnp.where(acted, log_ratio, 0.0), output.q[row.action], v, output.q)

    def gradient(pi: jax.Array, of: Estimates, row: Row, return_: jax.Array) -> jax.Array:
        mu = row.extras["mu"]
        return losses.acer_policy_gradient(pi, mu, of.others, of.v, row.action, return_, truncation)

    def value_loss(return_: jax.Array, q: jax.Array, v: jax.Array, rho: jax.Array) -> jax.Array:
        del q, v, rho
        return jnp.zeros_like(return_)

    extras = {"mu": jax.ShapeDtypeStruct((num_actions,), jnp.float32)}
    return Policy(
        extras=extras,
        draw=draw,
        greedy=greedy,
        log_prob=log_prob,
        entropy=entropy,
        kl=kl,
        estimates=estimates,
        gradient=gradient,
        value_loss=value_loss,
        root=1.0,
        graded_by_opc=False,
    )


def gaussian(
    actions: specs.BoundedArray,
    advantage: Callable[[Any, jax.Array, jax.Array], jax.Array],
    *,
    truncation: float,
    std: float,
    num_samples: int,
    dueling: bool,
) -> Policy:
    """A Gaussian of fixed deviation, whose statistic is its mean, in [-1, 1] for each dimension.

    -1 and 1 stand for the bounds of the actions. What is drawn may lie outside: the environment
    gets it clipped, while ratios are those of what was drawn, which is stored for that.

    Args:
      actions: `[d]`, with bounds.
      advantage: `(params, features [F], action [d]) -> []`.
      truncation: c.
      std: of the Gaussian.
      num_samples: n of the dueling network.
      dueling: whether Q is V plus an advantage less its mean, or the "advantage" alone.
    """
    low, high = jnp.asarray(actions.minimum), jnp.asarray(actions.maximum)
    (size,) = actions.shape

    def to_environment(x: jax.Array) -> jax.Array:
        return jnp.clip(low + 0.5 * (x + 1.0) * (high - low), low, high).astype(jnp.float32)

    def log_density(mean: jax.Array, x: jax.Array) -> jax.Array:
        """Up to a constant, which ratios do not see."""
        return -0.5 * jnp.sum(jnp.square((x - mean) / std))

    def draw(key: jax.Array, mean: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        x = mean + std * jax.random.normal(key, mean.shape)
        return to_environment(x), {"mu": mean, "drawn": x}

    def log_prob(mean: jax.Array, row: Row) -> jax.Array:
        return log_density(mean, row.extras["drawn"])

    def entropy(mean: jax.Array) -> jax.Array:
        return 0.0 * jnp.sum(mean)

    def kl(average: jax.Array, mean: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum(jnp.square((mean - average) / std))

    def estimates(
        params: Any, key: jax.Array, output: GaussianOutput, row: Row, acted: jax.Array
    ) -> Estimates:
        mean, mu = jax.lax.stop_gradient(output.policy), row.extras["mu"]
        drawn = row.extras["drawn"]
        samples = mean + std * jax.random.normal(key, (1 + num_samples, size))
        actions = jnp.concatenate([drawn[None], samples])  # taken, a', u_1 .. u_n
        advantages = jax.vmap(advantage, in_axes=(None, None, 0))(
            params, output.features, jnp.clip(actions, -1.0, 1.0)
        )

        def value(index: int) -> jax.Array:
            if not dueling:
                return advantages[index]
            return losses.stochastic_dueling(output.value, advantages[index], advantages[2:])

        log_ratio = log_density(mean, drawn) - log_density(mu, drawn)
        sampled_ratio = jnp.exp(log_density(mean, samples[0]) - log_density(mu, samples[0]))
        others = (samples[0], sampled_ratio, value(1))
        return Estimates(jnp.where(acted, log_ratio, 0.0), value(0), output.value, others)

    def gradient(mean: jax.Array, of: Estimates, row: Row, return_: jax.Array) -> jax.Array:
        sample, sampled_ratio, sampled_q = of.others
        score = jax.grad(log_density)
        return losses.acer_sampled_policy_gradient(
            score(mean, row.extras["drawn"]),
            jnp.exp(of.log_rho),
            return_ - of.v,
            score(mean, sample),
            sampled_ratio,
            sampled_q - of.v,
            truncation,
        )

    def value_loss(return_: jax.Array, q: jax.Array, v: jax.Array, rho: jax.Array) -> jax.Array:
        if dueling:
            return 0.5 * jnp.square(losses.v_target(return_, q, v, rho) - v)
        return 0.5 * rho * jnp.square(return_ - v)  # E.4

    extras = {
        "mu": jax.ShapeDtypeStruct((size,), jnp.float32),
        "drawn": jax.ShapeDtypeStruct((size,), jnp.float32),
    }
    return Policy(
        extras=extras,
        draw=draw,
        greedy=to_environment,
        log_prob=log_prob,
        entropy=entropy,
        kl=kl,
        estimates=estimates,
        gradient=gradient,
        value_loss=value_loss,
        root=1.0 / size,
        graded_by_opc=True,
    )
