"""D4PG's losses (Barth-Maron et al. 2018, Algorithm 1).

`B` denotes the batch, `F` features, `P` the outputs of the critic, which its head interprets.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from dm_env import specs

from ... import losses
from ...networks import CriticHead, D4PGNetworks
from ...networks.d4pg import middle_and_half
from ..n_step import NStepTransitions
from .networks import Params


class CriticResults(NamedTuple):
    """Further results of the critic's loss.

    Attributes:
      losses: `[B]`, unweighted.
      priorities: `[B]`, >= 0, of the head.
      outputs: `[B, P]`, of the online critic, for the actions taken.
      features: `[B, F]`, of the online torso.
    """

    losses: jax.Array
    priorities: jax.Array
    outputs: jax.Array
    features: jax.Array


def bootstrap(
    target_params: Params, observation_t: jax.Array, *, networks: D4PGNetworks
) -> jax.Array:
    """Outputs `[B, P]` of the target critic for the actions of the target policy.

    Args:
      target_params: of the target networks.
      observation_t: `[B, ...]`.
      networks: the agent's.
    """
    features = networks.torso.apply(target_params.torso, observation_t)
    action = networks.action(target_params.policy, features)
    return networks.critic.apply(target_params.critic, features, action)


def critic_loss(
    trained: tuple[Any, Any],
    transitions: NStepTransitions,
    outputs_t: jax.Array,
    weights: jax.Array,
    key: jax.Array,
    *,
    networks: D4PGNetworks,
    head: CriticHead,
) -> tuple[jax.Array, CriticResults]:
    """Importance-weighted mean of the critic's losses (Algorithm 1).

    Args:
      trained: parameters of (torso, critic), which take the gradient.
      transitions: `[B, ...]`.
      outputs_t: `[B, P]`, of `bootstrap`; no gradient flows into them.
      weights: `[B]`.
      key: PRNG key of the head's samples.
      networks: the agent's.
      head: interprets the outputs.

    Returns:
      The loss `[]` and its `CriticResults`.
    """
    torso, critic = trained
    features = networks.torso.apply(torso, transitions.observation_tm1)
    outputs = networks.critic.apply(critic, features, transitions.action_tm1)
    keys = jax.random.split(key, weights.shape[0])
    each = jax.vmap(head.loss)(outputs, transitions.return_, transitions.discount, outputs_t, keys)
    results = CriticResults(each.loss, each.priority, outputs, features)
    return jnp.mean(weights * each.loss), results


def policy_loss(
    policy: Any,
    critic: Any,
    features: jax.Array,
    *,
    networks: D4PGNetworks,
    head: CriticHead,
    actions: specs.BoundedArray,
    max_action_gradient_norm: float | None,
    preactivation_cost: float,
) -> tuple[jax.Array, jax.Array]:
    """Mean loss of the policy, whose gradient ascends the critic's mean; not weighted.

    dQ/da is computed for actions scaled to [-1, 1], as the critic's inputs are, so that the limit
    of its norm does not depend on the units of the actions. Without a limit the scale cancels out.

    Where the derivative of tanh is 0, nothing but the cost of its inputs moves the policy.

    Args:
      policy: its parameters, which take the gradient.
      critic: parameters of the online critic.
      features: `[B, F]`.
      networks: the agent's.
      head: interprets the critic's outputs.
      actions: spec of one action, finitely bounded.
      max_action_gradient_norm: largest norm of dQ/da, see
        `losses.deterministic_policy_gradient_loss`.
      preactivation_cost: of half the mean squared norm of the policy's outputs before `squash`.

    Returns:
      The loss `[]`, and the values `[B]` of the policy's actions.
    """
    middle, half = middle_and_half(actions)
    outputs = networks.policy.apply(policy, features)
    action = (networks.squash(outputs) - middle) / half

    def value(action: jax.Array) -> tuple[jax.Array, jax.Array]:
        q = jax.vmap(head.mean)(networks.critic.apply(critic, features, middle + half * action))
        return jnp.sum(q), q  # each action affects its own value only

    dq_da, q = jax.grad(value, has_aux=True)(jax.lax.stop_gradient(action))

    def loss(action: jax.Array, dq_da: jax.Array) -> jax.Array:
        return losses.deterministic_policy_gradient_loss(
            action.reshape(-1), dq_da.reshape(-1), max_action_gradient_norm
        )

    cost = preactivation_cost / 2 * jnp.sum(outputs**2) / outputs.shape[0]
    return jnp.mean(jax.vmap(loss)(action, dq_da)) + cost, q
