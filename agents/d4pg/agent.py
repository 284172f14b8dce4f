"""D4PG (Barth-Maron et al. 2018): a distributional critic, N-step returns, prioritised replay.

`B` denotes the batch, `F` features, `P` the outputs of the critic, which its head interprets.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from dm_env import StepType, specs

from ... import losses
from ...datatypes import EnvironmentSpec, Sample, SequenceSpec, TimeStep
from ...networks import CriticHead, categorical_head, mixture_of_gaussians_head, scalar_head
from ...networks.d4pg import D4PGNetworks, make_d4pg_networks, middle_and_half
from ..base import Agent, Decision, Update, takes_wrapper
from ..frame_stack import sees_frame_stacks
from ..normalization import normalizes_observations
from ..optimization import descend, gradient_metrics
from ..reward_scale import scales_rewards
from ..sequences import NStepTransitions, n_step_transitions
from .config import Config


class Params(NamedTuple):
    """Parameters of the three networks, online or target, or their gradients."""

    torso: Any  # of images; empty for vectors. Trained with the critic.
    policy: Any
    critic: Any


class LearnerState(NamedTuple):
    """State of the learner."""

    params: Params
    target_params: Params  # copied every `target_update_period` updates
    critic_optimizer_state: optax.OptState  # of (torso, critic)
    policy_optimizer_state: optax.OptState
    num_updates: jax.Array  # int32 `[]`
    key: jax.Array  # of the samples that the critic's head draws


class ActorState(NamedTuple):
    """State of an actor between time steps."""

    key: jax.Array  # of the noise
    noise: jax.Array  # `[...]` of one action, at the time step before, in units of sigma
    sigma: jax.Array  # float32 `[]`, standard deviation, in units of half the actions' range
    correlation: jax.Array  # float32 `[]`, of the noise at adjacent time steps


@sees_frame_stacks
@normalizes_observations
@scales_rewards
@takes_wrapper
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
    actions = _bounded_actions(environment_spec)
    middle, half = middle_and_half(actions)
    head_ = head or _make_head(config)
    nets = networks or make_d4pg_networks(
        environment_spec.observations,
        actions,
        num_outputs=head_.num_outputs,
        policy_sizes=config.policy_sizes,
        critic_sizes=config.critic_sizes,
        layer_norm=config.layer_norm,
        residual=config.residual,
        action_input=config.action_input,
        convolutions=config.convolutions,
        pixel_features=config.pixel_features,
    )
    adam = optax.adam  # its state is of another structure than AdamW's
    if config.weight_decay:
        adam = functools.partial(optax.adamw, weight_decay=config.weight_decay)
    of_critic = critic_optimizer or adam(config.critic_learning_rate)
    of_policy = policy_optimizer or adam(config.policy_learning_rate)

    def init(key: jax.Array) -> LearnerState:
        torso, policy, critic, key = jax.random.split(key, 4)
        params = Params(nets.torso.init(torso), nets.policy.init(policy), nets.critic.init(critic))
        states = of_critic.init((params.torso, params.critic)), of_policy.init(params.policy)
        return LearnerState(params, params, *states, jnp.zeros((), jnp.int32), key)

    def begin(key: jax.Array, actor_id: jax.Array, num_actors: int) -> ActorState:
        """A single actor gets the middle of both spacings (`Config.exploration`)."""
        share: Any = actor_id / (num_actors - 1) if num_actors > 1 else jnp.full((), 0.5)
        sigma: Any = config.sigma_min * (config.sigma_max / config.sigma_min) ** share
        if config.exploration == "fixed":
            share, sigma = 1.0, config.sigma
        correlation = jnp.float32(config.noise_correlation * share)
        return ActorState(key, jnp.zeros(actions.shape), jnp.float32(sigma), correlation)

    def policy(params: Params, timestep: TimeStep) -> jax.Array:
        features = nets.torso.apply(params.torso, timestep.observation[None])
        return nets.action(params.policy, features)[0]

    def clip(action: jax.Array) -> jax.Array:
        """Clips to the bounds, so that the critic learns the value of the executed action."""
        return jnp.clip(action, actions.minimum, actions.maximum)

    def explore(params: Params, state: ActorState, timestep: TimeStep) -> Decision:
        """The policy's action plus Gaussian noise (Algorithm 1), clipped to the bounds.

        The noise is an autoregressive process, in units of sigma: its variance stays 1.
        """
        key, noise_key = jax.random.split(state.key)
        fresh, c = jax.random.normal(noise_key, actions.shape), state.correlation
        is_first = timestep.step_type == StepType.FIRST
        noise = jnp.where(is_first, fresh, c * state.noise + jnp.sqrt(1 - c**2) * fresh)
        action = policy(params, timestep) + state.sigma * half * noise
        return Decision(clip(action), {}, state._replace(key=key, noise=noise))

    def exploit(params: Params, state: ActorState, timestep: TimeStep) -> Decision:
        return Decision(clip(policy(params, timestep)), {}, state)

    def critic_loss(
        trained: tuple[Any, Any],
        batch: NStepTransitions,
        outputs_t: jax.Array,
        weights: jax.Array,
        key: jax.Array,
    ) -> tuple[jax.Array, Any]:
        """Importance-weighted mean of the head's losses (Algorithm 1).

        Also returns each `CriticLoss` `[B]`, the outputs `[B, P]` and the features `[B, F]`.
        """
        torso, critic = trained
        features = nets.torso.apply(torso, batch.observation_tm1)
        outputs = nets.critic.apply(critic, features, batch.action_tm1)
        keys = jax.random.split(key, weights.shape[0])
        each = jax.vmap(head_.loss)(outputs, batch.return_, batch.discount, outputs_t, keys)
        return jnp.mean(weights * each.loss), (each, outputs, features)

    def policy_loss(params: Any, critic: Any, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean loss whose gradient ascends the critic's mean (Algorithm 1), and the values `[B]`.

        It is not weighted. dQ/da is computed for actions scaled to [-1, 1], as the critic's inputs
        are, so that the limit of its norm does not depend on the units of the actions. Where the
        derivative of tanh is 0, only the cost of its inputs moves the policy.
        """
        outputs = nets.policy.apply(params, features)
        action = (nets.squash(outputs) - middle) / half

        def value(action: jax.Array) -> tuple[jax.Array, jax.Array]:
            q = jax.vmap(head_.mean)(nets.critic.apply(critic, features, middle + half * action))
            return jnp.sum(q), q  # each action affects its own value only

        def loss(action: jax.Array, dq_da: jax.Array) -> jax.Array:
            return losses.deterministic_policy_gradient_loss(
                action.reshape(-1), dq_da.reshape(-1), config.max_action_gradient_norm
            )

        dq_da, q = jax.grad(value, has_aux=True)(jax.lax.stop_gradient(action))
        cost = config.preactivation_cost / 2 * jnp.sum(outputs**2) / outputs.shape[0]
        return jnp.mean(jax.vmap(loss)(action, dq_da)) + cost, q

    def gradients(state: LearnerState, sample: Sample) -> tuple[Params, Update]:
        """Gradients of both losses, at the parameters before the update (Algorithm 1)."""
        params, key = state.params, jax.random.fold_in(state.key, state.num_updates)
        batch = n_step_transitions(sample, config.discount)
        target = state.target_params
        features_t = nets.torso.apply(target.torso, batch.observation_t)
        action_t = nets.action(target.policy, features_t)
        outputs_t = nets.critic.apply(target.critic, features_t, action_t)
        critic_grads, (each, outputs, features) = jax.grad(critic_loss, has_aux=True)(
            (params.torso, params.critic), batch, outputs_t, sample.weights, key
        )
        (policy_value, q), policy_grads = jax.value_and_grad(policy_loss, has_aux=True)(
            params.policy, params.critic, features
        )
        found = jax.vmap(head_.metrics)(outputs, batch.return_, batch.discount, outputs_t)
        metrics = {
            "critic_loss": jnp.mean(each.loss),
            "policy_loss": policy_value,
            "value": jnp.mean(q),
            "priority": jnp.mean(each.priority),
            "smallest_weight": jnp.min(sample.weights),
            "largest_weight": jnp.max(sample.weights),
            **gradient_metrics(critic_grads, "critic_"),
            **gradient_metrics(policy_grads, "policy_"),
            **jax.tree.map(jnp.mean, found),
        }
        torso, critic = critic_grads
        return Params(torso, policy_grads, critic), Update(each.priority, metrics)

    def apply(state: LearnerState, grads: Params) -> LearnerState:
        old = state.params
        both, trained = (grads.torso, grads.critic), (old.torso, old.critic)
        (torso, critic), critic_state = descend(
            of_critic, both, state.critic_optimizer_state, trained
        )
        policy, policy_state = descend(
            of_policy, grads.policy, state.policy_optimizer_state, old.policy
        )
        params, num_updates = Params(torso, policy, critic), state.num_updates + 1
        target_params = optax.periodic_update(
            params, state.target_params, num_updates, config.target_update_period
        )
        return LearnerState(
            params, target_params, critic_state, policy_state, num_updates, state.key
        )

    return Agent(
        init=init,
        acting_params=lambda state: state.params._replace(critic=()),
        begin=begin,
        explore=explore,
        exploit=exploit,
        gradients=gradients,
        apply=apply,
        sequence=SequenceSpec(length=config.n_step + 1, period=1, crosses_episodes=False),
    )


def _bounded_actions(environment_spec: EnvironmentSpec) -> specs.BoundedArray:
    actions = environment_spec.actions
    if environment_spec.masks_actions:
        raise ValueError(f"D4PG needs continuous actions, without action_mask, got {actions!r}.")
    if not np.issubdtype(actions.dtype, np.floating):
        raise ValueError(f"D4PG needs continuous actions (floats within bounds), got {actions!r}.")
    if isinstance(actions, specs.BoundedArray):
        _, half = middle_and_half(actions)
        if np.all(np.isfinite(half) & (half > 0)):
            return actions
    raise ValueError(
        f"D4PG needs actions with finite bounds, each minimum below its maximum, got {actions!r}."
    )


def _make_head(config: Config) -> CriticHead:
    if config.critic == "categorical":
        return categorical_head(config.num_atoms, config.vmin, config.vmax)
    if config.critic == "mixture_of_gaussians":
        sizes = config.mixture_components, config.mixture_samples, config.mixture_min_scale
        return mixture_of_gaussians_head(*sizes, config.return_unit)
    return scalar_head(config.return_unit)
