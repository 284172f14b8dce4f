"""A Gaussian policy of fixed standard deviation; its statistic phi is the mean, `[d]`.

Actions are scaled: -1 and 1 are the bounds. Drawn actions may lie outside the bounds; they are
clipped for the environment. Ratios are those of the drawn actions, which are stored.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ... import losses
from ...datatypes import Row
from ...networks import GaussianOutput
from ...networks.d4pg import middle_and_half
from .policies import Estimates, Policy

# `(params, features [F], action [d]) -> []`.
Advantage: TypeAlias = Callable[[Any, jax.Array, jax.Array], jax.Array]


def gaussian(
    actions: specs.BoundedArray,
    advantage: Advantage,
    *,
    truncation: float,
    std: float,
    num_samples: int,
    dueling: bool,
) -> Policy:
    """A Gaussian policy over continuous actions.

    Args:
      actions: `[d]`, with bounds.
      advantage: the advantage network, or Q's last layers.
      truncation: c of the importance weights.
      std: the standard deviation, in units of half the range of the actions.
      num_samples: n, the number of actions drawn for the mean advantage of stochastic dueling.
      dueling: whether Q is V plus `advantage` minus its mean; otherwise it is `advantage`.
    """
    (size,) = actions.shape
    to_environment = functools.partial(_to_environment, actions=actions)
    return Policy(
        extras={
            "mu": jax.ShapeDtypeStruct((size,), jnp.float32),
            "drawn": jax.ShapeDtypeStruct((size,), jnp.float32),
        },
        draw=functools.partial(_draw, std=std, to_environment=to_environment),
        greedy=to_environment,
        log_prob=functools.partial(_log_prob, std=std),
        entropy=_entropy,
        kl=functools.partial(_kl, std=std),
        estimates=functools.partial(
            _estimates, advantage=advantage, std=std, num_samples=num_samples, dueling=dueling
        ),
        gradient=functools.partial(_gradient, std=std, truncation=truncation),
        value_loss=functools.partial(_value_loss, dueling=dueling),
        root=1.0 / size,
        uses_opc=True,
    )


def _to_environment(x: jax.Array, *, actions: specs.BoundedArray) -> jax.Array:
    """From scaled actions to those of the environment, within the bounds."""
    low, high = jnp.asarray(actions.minimum), jnp.asarray(actions.maximum)
    middle, half = middle_and_half(actions)
    if (half <= np.finfo(np.float32).max / 2).all():
        scaled = low + 0.5 * (x + 1.0) * (high - low)
    else:  # float32 has no such difference of bounds
        scaled = jnp.clip(x, -1.0, 1.0) * half + middle
    return jnp.clip(scaled, low, high).astype(jnp.float32)


def _log_density(mean: jax.Array, x: jax.Array, *, std: float) -> jax.Array:
    """Up to a constant, which cancels in ratios."""
    return -0.5 * jnp.sum(jnp.square((x - mean) / std))


def _draw(
    key: jax.Array,
    mean: jax.Array,
    *,
    std: float,
    to_environment: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, dict[str, jax.Array]]:
    x = mean + std * jax.random.normal(key, mean.shape)
    return to_environment(x), {"mu": mean, "drawn": x}


def _log_prob(mean: jax.Array, row: Row, *, std: float) -> jax.Array:
    return _log_density(mean, row.extras["drawn"], std=std)


def _entropy(mean: jax.Array) -> jax.Array:
    """A constant, since the standard deviation is fixed."""
    return 0.0 * jnp.sum(mean)


def _kl(average: jax.Array, mean: jax.Array, *, std: float) -> jax.Array:
    return 0.5 * jnp.sum(jnp.square((mean - average) / std))


def _estimates(
    params: Any,
    key: jax.Array,
    output: GaussianOutput,
    row: Row,
    acted: jax.Array,
    *,
    advantage: Advantage,
    std: float,
    num_samples: int,
    dueling: bool,
) -> Estimates:
    """`others` are an action a' drawn from the policy, its ratio and its value."""
    log_density = functools.partial(_log_density, std=std)
    mean, mu = jax.lax.stop_gradient(output.policy), row.extras["mu"]
    drawn = row.extras["drawn"]
    samples = mean + std * jax.random.normal(key, (1 + num_samples, *mean.shape))
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


def _gradient(
    mean: jax.Array,
    estimates: Estimates,
    row: Row,
    return_: jax.Array,
    *,
    std: float,
    truncation: float,
) -> jax.Array:
    sample, sampled_ratio, sampled_q = estimates.others
    score = jax.grad(functools.partial(_log_density, std=std))
    return losses.acer_sampled_policy_gradient(
        score(mean, row.extras["drawn"]),
        jnp.exp(estimates.log_rho),
        return_ - estimates.v,
        score(mean, sample),
        sampled_ratio,
        sampled_q - estimates.v,
        truncation,
    )


def _value_loss(
    return_: jax.Array, q: jax.Array, v: jax.Array, rho: jax.Array, *, dueling: bool
) -> jax.Array:
    if dueling:
        return 0.5 * jnp.square(losses.v_target(return_, q, v, rho) - v)
    return losses.importance_weighted_value_loss(return_, v, rho)
