"""D4PG: the agent. Reads top to bottom: states, then `make_agent`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ... import losses
from ...datatypes import EnvironmentSpec, Row, Sample, SequenceSpec, TimeStep
from ...networks import CriticHead, D4PGNetworks
from ...networks.d4pg import middle_and_half
from ..base import Agent, Decision, Update
from .config import Config
from .networks import bounded_actions, make_head, make_networks


class Params(NamedTuple):
    """Parameters of the three networks, online or target.

    Attributes:
      torso: of images; empty for vectors. Trained with the critic.
      policy: the policy's.
      critic: the critic's.
    """

    torso: Any
    policy: Any
    critic: Any


class LearnerState(NamedTuple):
    """What the learner keeps.

    Attributes:
      params: the online networks' `Params`.
      target_params: those of the target networks, copied every `target_update_period` updates.
      critic_optimizer_state: optax's, of (torso, critic).
      policy_optimizer_state: optax's, of the policy.
      num_updates: int32 `[]`.
      key: PRNG key that draws what the critic's head samples.
    """

    params: Params
    target_params: Params
    critic_optimizer_state: optax.OptState
    policy_optimizer_state: optax.OptState
    num_updates: jax.Array
    key: jax.Array


class ActorState(NamedTuple):
    """What an actor keeps between time steps.

    Attributes:
      key: PRNG key that draws noise.
      sigma: float32 `[]`, the noise's standard deviation, where half the bounds' distance is 1.
    """

    key: jax.Array
    sigma: jax.Array


class _Transitions(NamedTuple):
    """N-step transitions: what a batch of windows comes down to.

    Attributes:
      observation_tm1: `[B, ...]`, the windows' first.
      action_tm1: `[B, ...]`, the action taken there.
      return_: `[B]`.
      discount: `[B]`, of what follows.
      observation_t: `[B, ...]`, to bootstrap from: the windows' last one that is not padding.
    """

    observation_tm1: jax.Array
    action_tm1: jax.Array
    return_: jax.Array
    discount: jax.Array
    observation_t: jax.Array


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
      environment_spec: actions of floats with finite bounds; observations that the networks take.
      config: hyper-parameters.
      networks: in place of the default ones; the critic's outputs are the head's.
      head: in place of the one that `config.critic` names.
      policy_optimizer: in place of Adam.
      critic_optimizer: in place of Adam.

    Raises:
      ValueError: actions that are discrete or without bounds, or observations that the default
        networks cannot take.
    """
    actions = bounded_actions(environment_spec)
    _, half = middle_and_half(actions)
    head = head or make_head(config)
    networks = networks or make_networks(environment_spec, config, head)
    policy_optimizer = policy_optimizer or optax.adam(config.policy_learning_rate)
    critic_optimizer = critic_optimizer or optax.adam(config.critic_learning_rate)

    def init(key: jax.Array) -> LearnerState:
        torso_key, policy_key, critic_key, key = jax.random.split(key, 4)
        params = Params(
            networks.torso.init(torso_key),
            networks.policy.init(policy_key),
            networks.critic.init(critic_key),
        )
        return LearnerState(
            params,
            params,
            critic_optimizer.init((params.torso, params.critic)),
            policy_optimizer.init(params.policy),
            jnp.zeros((), jnp.int32),
            key,
        )

    def acting_params(state: LearnerState) -> Params:
        return state.params._replace(critic=())

    def begin(key: jax.Array, actor_id: jax.Array, num_actors: int) -> ActorState:
        return ActorState(key, _sigma(config, actor_id, num_actors))

    def act(params: Params, timestep: TimeStep) -> jax.Array:
        features = networks.torso.apply(params.torso, timestep.observation[None])
        return networks.policy.apply(params.policy, features)[0]

    def within_bounds(action: jax.Array) -> jax.Array:
        """What is stored must be what was executed: the critic learns of that action."""
        return jnp.clip(action, actions.minimum, actions.maximum)

    def explore(params: Params, state: ActorState, timestep: TimeStep) -> Decision:
        key, noise_key = jax.random.split(state.key)
        noise = state.sigma * half * jax.random.normal(noise_key, actions.shape)
        action = within_bounds(act(params, timestep) + noise)
        return Decision(action, {}, state._replace(key=key))

    def exploit(params: Params, state: ActorState, timestep: TimeStep) -> Decision:
        return Decision(within_bounds(act(params, timestep)), {}, state)

    def transitions(rows: Row, mask: jax.Array) -> _Transitions:
        # Behind the end of an episode: nothing is added, and nothing is discounted.
        r_t = jnp.where(mask[:, 1:], rows.reward[:, 1:], 0.0)
        discount_t = jnp.where(mask[:, 1:], config.discount * rows.discount[:, 1:], 1.0)
        return_, discount = jax.vmap(losses.n_step_return)(r_t, discount_t)
        last = jnp.sum(mask, axis=1) - 1
        observation_t = jax.vmap(lambda observations, t: observations[t])(rows.observation, last)
        return _Transitions(
            rows.observation[:, 0], rows.action[:, 0], return_, discount, observation_t
        )

    def bootstrap(target: Params, observation_t: jax.Array) -> jax.Array:
        """The target critic's outputs `[B, P]` for the target policy's actions."""
        features = networks.torso.apply(target.torso, observation_t)
        action = networks.policy.apply(target.policy, features)
        return networks.critic.apply(target.critic, features, action)

    def critic_loss(
        trained: Any, batch: _Transitions, outputs_t: jax.Array, weights: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, Any]:
        """Weighted mean, and beside it each loss `[B]`, the outputs `[B, P]`, the features."""
        torso, critic = trained
        features = networks.torso.apply(torso, batch.observation_tm1)
        outputs = networks.critic.apply(critic, features, batch.action_tm1)
        keys = jax.random.split(key, weights.shape[0])
        each = jax.vmap(head.loss)(outputs, batch.return_, batch.discount, outputs_t, keys)
        return jnp.mean(weights * each), (each, outputs, features)

    def policy_loss(policy: Any, critic: Any, features: jax.Array) -> tuple[jax.Array, Any]:
        """Mean, not weighted; beside it the values `[B]` of the policy's actions."""
        action = networks.policy.apply(policy, features)

        def value(action: jax.Array) -> tuple[jax.Array, jax.Array]:
            q = jax.vmap(head.mean)(networks.critic.apply(critic, features, action))
            return jnp.sum(q), q  # no action matters to another's value

        dq_da, q = jax.grad(value, has_aux=True)(jax.lax.stop_gradient(action))

        def loss(action: jax.Array, dq_da: jax.Array) -> jax.Array:
            return losses.deterministic_policy_gradient_loss(
                action.reshape(-1), dq_da.reshape(-1), config.max_action_gradient_norm
            )

        return jnp.mean(jax.vmap(loss)(action, dq_da)), q

    def update(state: LearnerState, sample: Sample) -> tuple[LearnerState, Update]:
        params, key = state.params, jax.random.fold_in(state.key, state.num_updates)
        batch = transitions(sample.rows, sample.mask)
        outputs_t = bootstrap(state.target_params, batch.observation_t)
        critic_grads, (each, outputs, features) = jax.grad(critic_loss, has_aux=True)(
            (params.torso, params.critic), batch, outputs_t, sample.weights, key
        )
        (policy_value, q), policy_grads = jax.value_and_grad(policy_loss, has_aux=True)(
            params.policy, params.critic, features
        )
        critic_updates, critic_optimizer_state = critic_optimizer.update(
            critic_grads, state.critic_optimizer_state, (params.torso, params.critic)
        )
        policy_updates, policy_optimizer_state = policy_optimizer.update(
            policy_grads, state.policy_optimizer_state, params.policy
        )
        torso, critic = optax.apply_updates((params.torso, params.critic), critic_updates)
        params = Params(torso, optax.apply_updates(params.policy, policy_updates), critic)
        num_updates = state.num_updates + 1
        target_params = optax.periodic_update(
            params, state.target_params, num_updates, config.target_update_period
        )
        # A mixture's loss can be negative, a priority cannot; rounding may reach below the least.
        priorities = jnp.maximum(each - head.least_loss, 0.0)
        metrics = {
            "critic_loss": jnp.mean(each),
            "policy_loss": policy_value,
            "value": jnp.mean(q),
            "priority": jnp.mean(priorities),
            "smallest_weight": jnp.min(sample.weights),
            "largest_weight": jnp.max(sample.weights),
            "critic_gradient_norm": optax.tree.norm(critic_grads),
            "policy_gradient_norm": optax.tree.norm(policy_grads),
            **jax.tree.map(jnp.mean, jax.vmap(head.metrics)(outputs)),
        }
        new_state = LearnerState(
            params,
            target_params,
            critic_optimizer_state,
            policy_optimizer_state,
            num_updates,
            state.key,
        )
        return new_state, Update(priorities, metrics)

    sequence = SequenceSpec(length=config.n_step + 1, period=1, crosses_episodes=False)
    return Agent(init, acting_params, begin, explore, exploit, update, sequence)


def _sigma(config: Config, actor_id: jax.Array, num_actors: int) -> jax.Array:
    """The noise of one actor: sigma_min for the first to sigma_max for the last one."""
    if config.exploration == "fixed":
        return jnp.full((), config.sigma, jnp.float32)
    # One actor alone takes the geometric mean.
    share = actor_id / (num_actors - 1) if num_actors > 1 else jnp.full((), 0.5)
    sigma = config.sigma_min * (config.sigma_max / config.sigma_min) ** share
    return jnp.asarray(sigma, jnp.float32)
