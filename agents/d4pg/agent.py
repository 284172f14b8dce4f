"""D4PG: the learner, and the agent's functions put together."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from dm_env import specs

from ...datatypes import EnvironmentSpec, Sample, SequenceSpec
from ...networks import CriticHead, D4PGNetworks
from ..base import Agent, Update
from ..frame_stack import sees_frame_stacks
from ..n_step import n_step_transitions
from ..optimization import descend, gradient_metrics
from ..reward_scale import scales_rewards
from . import acting
from .config import Config
from .loss import bootstrap, critic_loss, policy_loss
from .networks import Params, bounded_actions, make_head, make_networks


class LearnerState(NamedTuple):
    """State of the learner.

    Attributes:
      params: of the online networks.
      target_params: of the target networks, copied every `target_update_period` updates.
      critic_optimizer_state: optax's, of (torso, critic).
      policy_optimizer_state: optax's, of the policy.
      num_updates: int32 `[]`.
      key: PRNG key of the samples that the critic's head draws.
    """

    params: Params
    target_params: Params
    critic_optimizer_state: optax.OptState
    policy_optimizer_state: optax.OptState
    num_updates: jax.Array
    key: jax.Array


class Optimizers(NamedTuple):
    """The two optimisers.

    Attributes:
      critic: of (torso, critic).
      policy: of the policy.
    """

    critic: optax.GradientTransformation
    policy: optax.GradientTransformation


@sees_frame_stacks
@scales_rewards
def make_agent(
    environment_spec: EnvironmentSpec,
    config: Config,
    *,
    networks: D4PGNetworks | None = None,
    head: CriticHead | None = None,
    policy_optimizer: optax.GradientTransformation | None = None,
    critic_optimizer: optax.GradientTransformation | None = None,
) -> Agent:
    """D4PG (Barth-Maron et al. 2018) as pure functions.

    Args:
      environment_spec: float actions with finite bounds; observations that the networks take.
      config: hyper-parameters.
      networks: in place of the default ones; the critic has `head.num_outputs` outputs.
      head: in place of the one that `config.critic` names.
      policy_optimizer: in place of Adam.
      critic_optimizer: in place of Adam.

    Raises:
      ValueError: discrete actions, actions without bounds, or observations that the default
        networks cannot take.
    """
    actions = bounded_actions(environment_spec)
    head = head or make_head(config)
    networks = networks or make_networks(environment_spec, config, head)
    optimizers = Optimizers(
        critic_optimizer or optax.adam(config.critic_learning_rate),
        policy_optimizer or optax.adam(config.policy_learning_rate),
    )
    return Agent(
        init=functools.partial(init, networks=networks, optimizers=optimizers),
        acting_params=acting_params,
        begin=functools.partial(acting.begin, config=config, actions=actions),
        explore=functools.partial(acting.explore, networks=networks, actions=actions),
        exploit=functools.partial(acting.exploit, networks=networks, actions=actions),
        gradients=functools.partial(
            gradients, config=config, networks=networks, head=head, actions=actions
        ),
        apply=functools.partial(apply, config=config, optimizers=optimizers),
        sequence=SequenceSpec(length=config.n_step + 1, period=1, crosses_episodes=False),
    )


def init(key: jax.Array, *, networks: D4PGNetworks, optimizers: Optimizers) -> LearnerState:
    """The first state: target networks equal the online ones."""
    torso_key, policy_key, critic_key, key = jax.random.split(key, 4)
    params = Params(
        networks.torso.init(torso_key),
        networks.policy.init(policy_key),
        networks.critic.init(critic_key),
    )
    return LearnerState(
        params,
        params,
        optimizers.critic.init((params.torso, params.critic)),
        optimizers.policy.init(params.policy),
        jnp.zeros((), jnp.int32),
        key,
    )


def acting_params(state: LearnerState) -> Params:
    """The online parameters without the critic's."""
    return state.params._replace(critic=())


def gradients(
    state: LearnerState,
    sample: Sample,
    *,
    config: Config,
    networks: D4PGNetworks,
    head: CriticHead,
    actions: specs.BoundedArray,
) -> tuple[Params, Update]:
    """Gradients of both losses, at the parameters before the update (Algorithm 1).

    Args:
      state: of the learner.
      sample: B sequences of N + 1 rows.
      config: hyper-parameters.
      networks: the agent's.
      head: interprets the critic's outputs.
      actions: spec of one action, finitely bounded.

    Returns:
      Gradients of the critic's loss for torso and critic, and of the policy's loss for the policy;
      and the `Update`.
    """
    params, key = state.params, jax.random.fold_in(state.key, state.num_updates)
    transitions = n_step_transitions(sample, config.discount)
    outputs_t = bootstrap(state.target_params, transitions.observation_t, networks=networks)
    critic_grads, results = jax.grad(
        functools.partial(critic_loss, networks=networks, head=head), has_aux=True
    )((params.torso, params.critic), transitions, outputs_t, sample.weights, key)
    loss = functools.partial(
        policy_loss,
        networks=networks,
        head=head,
        actions=actions,
        max_action_gradient_norm=config.max_action_gradient_norm,
        preactivation_cost=config.preactivation_cost,
    )
    (policy_value, q), policy_grads = jax.value_and_grad(loss, has_aux=True)(
        params.policy, params.critic, results.features
    )
    metrics = {
        "critic_loss": jnp.mean(results.losses),
        "policy_loss": policy_value,
        "value": jnp.mean(q),
        "priority": jnp.mean(results.priorities),
        "smallest_weight": jnp.min(sample.weights),
        "largest_weight": jnp.max(sample.weights),
        **gradient_metrics(critic_grads, "critic_"),
        **gradient_metrics(policy_grads, "policy_"),
        **jax.tree.map(
            jnp.mean,
            jax.vmap(head.metrics)(
                results.outputs, transitions.return_, transitions.discount, outputs_t
            ),
        ),
    }
    torso_grads, critic_grads = critic_grads
    return Params(torso_grads, policy_grads, critic_grads), Update(results.priorities, metrics)


def apply(
    state: LearnerState, grads: Params, *, config: Config, optimizers: Optimizers
) -> LearnerState:
    """One step of both optimisers; every `target_update_period` steps copies the targets."""
    (torso, critic), critic_optimizer_state = descend(
        optimizers.critic,
        (grads.torso, grads.critic),
        state.critic_optimizer_state,
        (state.params.torso, state.params.critic),
    )
    policy, policy_optimizer_state = descend(
        optimizers.policy, grads.policy, state.policy_optimizer_state, state.params.policy
    )
    params, num_updates = Params(torso, policy, critic), state.num_updates + 1
    target_params = optax.periodic_update(
        params, state.target_params, num_updates, config.target_update_period
    )
    return LearnerState(
        params,
        target_params,
        critic_optimizer_state,
        policy_optimizer_state,
        num_updates,
        state.key,
    )
