"""ACER's two kinds of policies: categorical over discrete actions, Gaussian over continuous ones.

Unbatched. `D` denotes the size of a policy's statistics phi, which are the probabilities of `A`
discrete actions or the mean of a Gaussian. Sections and equations refer to Wang et al. 2017.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs
from jax import Array

from ... import losses
from ...datatypes import Row
from ...networks import CategoricalOutput, GaussianOutput
from ...networks.d4pg import middle_and_half
from ..exploration import draw_action
from .config import Config

# `(params, features [F], action [d]) -> []`.
Advantage: TypeAlias = Callable[[Any, Array, Array], Array]


class Estimates(NamedTuple):
    """The critic's estimates at one row, or stacked at several; all take gradients."""

    q: Array  # `[]`, the value of the action taken
    v: Array  # `[]`, the state's value
    others: Any  # inputs of `Policy.gradient` for actions that were not taken


class Policy(NamedTuple):
    """What differs between the kinds of policies.

    `extras` are shapes of what actors store with each row, besides a recurrent state; "mu", the
    statistics of the policy that acted, is one of them. `log_prob` is of the action taken in a row,
    up to a constant. `entropy` is None where it is constant. `kl` is the divergence of its second
    argument from the first. `estimates` gets the advantage network's parameters, a key, the
    policy network's output and a row. `critic_loss` and `gradient` (ACER's, before any projection)
    get a return and a ratio. `root` is the exponent of ratios in Retrace. `uses_opc` tells whether
    the policy gradient uses Q_opc in place of Retrace.
    """

    extras: dict[str, jax.ShapeDtypeStruct]
    draw: Callable[[Array, Array], tuple[Array, dict[str, Array]]]
    greedy: Callable[[Array], Array]
    log_prob: Callable[[Array, Row], Array]
    entropy: Callable[[Array], Array] | None
    kl: Callable[[Array, Array], Array]
    estimates: Callable[[Any, Array, Any, Row], Estimates]
    critic_loss: Callable[[Array, Estimates, Array], Array]
    gradient: Callable[[Array, Row, Estimates, Array, Array], Array]
    root: float
    uses_opc: bool


def categorical(actions: specs.DiscreteArray, config: Config) -> Policy:
    """A policy over A actions. V is the mean of Q over the policy, so it has no loss of its own."""

    def log(pi: Array) -> Array:
        return jnp.log(jnp.maximum(pi, jnp.finfo(pi.dtype).tiny))

    def estimates(params: Any, key: Array, output: CategoricalOutput, row: Row) -> Estimates:
        """`others` are the values of all actions, `[A]`."""
        v = jax.lax.stop_gradient(output.policy) @ output.q
        return Estimates(output.q[row.action], v, output.q)

    def gradient(pi: Array, row: Row, estimates: Estimates, rho: Array, return_: Array) -> Array:
        """Equation 9, of the probabilities."""
        q, v, mu = estimates.others, estimates.v, row.extras["mu"]
        return losses.acer_policy_gradient(pi, mu, q, v, row.action, return_, config.truncation)

    return Policy(
        extras={"mu": jax.ShapeDtypeStruct((int(actions.num_values),), jnp.float32)},
        draw=lambda key, pi: (draw_action(key, pi), {"mu": pi}),
        greedy=lambda pi: jnp.argmax(pi).astype(jnp.int32),
        log_prob=lambda pi, row: log(pi)[row.action],
        entropy=losses.policy_entropy,
        kl=lambda average, pi: jnp.sum(average * (log(average) - log(pi))),
        estimates=estimates,
        critic_loss=lambda return_, estimates, rho: 0.5 * jnp.square(return_ - estimates.q),
        gradient=gradient,
        root=1.0,
        uses_opc=False,
    )


def gaussian(actions: specs.BoundedArray, advantage: Advantage, config: Config) -> Policy:
    """A Gaussian policy of fixed standard deviation over actions `[d]` with bounds.

    Its actions are scaled: -1 and 1 are the bounds. Drawn actions may lie outside the bounds; they
    are clipped for the environment. Ratios are computed with the drawn actions, which are stored.
    `advantage` is the advantage network, or Q's last layers without stochastic dueling.
    """
    (size,) = actions.shape
    vector = jax.ShapeDtypeStruct((size,), jnp.float32)
    std = config.policy_std

    def to_environment(x: Array) -> Array:
        """From scaled actions to the environment's, within the bounds."""
        low, high = jnp.asarray(actions.minimum), jnp.asarray(actions.maximum)
        middle, half = middle_and_half(actions)
        if (half <= np.finfo(np.float32).max / 2).all():
            scaled = low + 0.5 * (x + 1.0) * (high - low)
        else:  # float32 has no such difference of bounds
            scaled = jnp.clip(x, -1.0, 1.0) * half + middle
        return jnp.clip(scaled, low, high).astype(jnp.float32)

    def draw(key: Array, mean: Array) -> tuple[Array, dict[str, Array]]:
        x = mean + std * jax.random.normal(key, mean.shape)
        return to_environment(x), {"mu": mean, "drawn": x}

    def log_density(mean: Array, x: Array) -> Array:
        """Up to a constant, which cancels in ratios."""
        return -0.5 * jnp.sum(jnp.square((x - mean) / std))

    def estimates(params: Any, key: Array, output: GaussianOutput, row: Row) -> Estimates:
        """`others` are an action a' drawn from the policy, its ratio and its value (5.1)."""
        mean, mu = jax.lax.stop_gradient(output.policy), row.extras["mu"]
        samples = mean + std * jax.random.normal(key, (1 + config.num_dueling_samples, size))
        a_and_samples = jnp.concatenate([row.extras["drawn"][None], samples])  # a, a', u_1 .. u_n
        advantages = jax.vmap(advantage, in_axes=(None, None, 0))(
            params, output.features, jnp.clip(a_and_samples, -1.0, 1.0)
        )

        def value(index: int) -> Array:
            if not config.stochastic_dueling:
                return advantages[index]
            return losses.stochastic_dueling(output.value, advantages[index], advantages[2:])

        sampled_ratio = jnp.exp(log_density(mean, samples[0]) - log_density(mu, samples[0]))
        return Estimates(value(0), output.value, (samples[0], sampled_ratio, value(1)))

    def critic_loss(return_: Array, estimates: Estimates, rho: Array) -> Array:
        """Of Q, and of V: its target (eq. 14), or importance sampling (E.4)."""
        q, v = estimates.q, estimates.v
        if config.stochastic_dueling:
            value_loss = 0.5 * jnp.square(losses.v_target(return_, q, v, rho) - v)
        else:
            value_loss = losses.importance_weighted_value_loss(return_, v, rho)
        return 0.5 * jnp.square(return_ - q) + value_loss

    def gradient(mean: Array, row: Row, estimates: Estimates, rho: Array, return_: Array) -> Array:
        """Equation 16, of the mean."""
        sample, sampled_ratio, sampled_q = estimates.others
        score = jax.grad(log_density)
        return losses.acer_sampled_policy_gradient(
            score(mean, row.extras["drawn"]),
            rho,
            return_ - estimates.v,
            score(mean, sample),
            sampled_ratio,
            sampled_q - estimates.v,
            config.truncation,
        )

    return Policy(
        extras={"mu": vector, "drawn": vector},
        draw=draw,
        greedy=to_environment,
        log_prob=lambda mean, row: log_density(mean, row.extras["drawn"]),
        entropy=None,
        kl=lambda average, mean: 0.5 * jnp.sum(jnp.square((mean - average) / std)),
        estimates=estimates,
        critic_loss=critic_loss,
        gradient=gradient,
        root=1.0 / size,
        uses_opc=True,
    )
