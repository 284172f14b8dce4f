"""A policy over A discrete actions; its statistics phi are the probabilities pi, `[A]`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from dm_env import specs

from ... import losses
from ...datatypes import Row
from ...networks import CategoricalOutput
from .policies import Estimates, Policy


def categorical(actions: specs.DiscreteArray, *, truncation: float) -> Policy:
    """A policy over discrete actions.

    V is the mean of Q over the policy, so it has no loss of its own.

    Args:
      actions: A actions.
      truncation: c of the importance weights.
    """
    num_actions = int(actions.num_values)
    return Policy(
        extras={"mu": jax.ShapeDtypeStruct((num_actions,), jnp.float32)},
        draw=_draw,
        greedy=_greedy,
        log_prob=_log_prob,
        entropy=_entropy,
        kl=_kl,
        estimates=_estimates,
        gradient=functools.partial(_gradient, truncation=truncation),
        value_loss=_value_loss,
        root=1.0,
        uses_opc=False,
    )


def _log(pi: jax.Array) -> jax.Array:
    return jnp.log(jnp.maximum(pi, jnp.finfo(pi.dtype).tiny))


def _draw(key: jax.Array, pi: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    return jax.random.categorical(key, _log(pi)).astype(jnp.int32), {"mu": pi}


def _greedy(pi: jax.Array) -> jax.Array:
    return jnp.argmax(pi).astype(jnp.int32)


def _log_prob(pi: jax.Array, row: Row) -> jax.Array:
    return _log(pi)[row.action]


def _entropy(pi: jax.Array) -> jax.Array:
    return losses.policy_entropy(jnp.maximum(pi, jnp.finfo(pi.dtype).tiny))


def _kl(average: jax.Array, pi: jax.Array) -> jax.Array:
    return jnp.sum(average * (_log(average) - _log(pi)))


def _estimates(
    params: Any, key: jax.Array, output: CategoricalOutput, row: Row, acted: jax.Array
) -> Estimates:
    """`others` are the values of all actions, `[A]`."""
    del params, key
    log_ratio = _log_prob(output.policy, row) - _log(row.extras["mu"])[row.action]
    v = jax.lax.stop_gradient(output.policy) @ output.q
    return Estimates(jnp.where(acted, log_ratio, 0.0), output.q[row.action], v, output.q)


def _gradient(
    pi: jax.Array, estimates: Estimates, row: Row, return_: jax.Array, *, truncation: float
) -> jax.Array:
    q, v, mu = estimates.others, estimates.v, row.extras["mu"]
    return losses.acer_policy_gradient(pi, mu, q, v, row.action, return_, truncation)


def _value_loss(return_: jax.Array, q: jax.Array, v: jax.Array, rho: jax.Array) -> jax.Array:
    del q, v, rho
    return jnp.zeros_like(return_)
