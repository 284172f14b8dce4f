"""ACER: the agent. Reads top to bottom: state, then `make_agent`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from dm_env import StepType, specs

from ...datatypes import EnvironmentSpec, Row, Sample, SequenceSpec, TimeStep
from ...networks import (
    FeedForwardNetwork,
    RecurrentNetwork,
    make_acer_network,
    make_advantage_network,
)
from ..base import Agent, Decision, Update
from . import estimators
from .config import Config
from .policies import Policy, categorical, gaussian


class LearnerState(NamedTuple):
    """What the learner keeps.

    Attributes:
      params: `{"network": ..., "advantage": ...}`, the second for continuous actions only.
      average_params: the network's, exponentially averaged over updates.
      optimizer_state: optax's.
      num_updates: int32 `[]`.
      key: PRNG key that draws the actions of stochastic dueling and of the bias correction.
    """

    params: Any
    average_params: Any
    optimizer_state: optax.OptState
    num_updates: jax.Array
    key: jax.Array


class ActorState(NamedTuple):
    """What an actor keeps between time steps.

    Attributes:
      key: PRNG key that draws actions.
      memory: the network's recurrent state before the next observation; empty without memory.
    """

    key: jax.Array
    memory: Any


class _Steps(NamedTuple):
    """Losses and errors of the source steps of one sequence, each `[T]`."""

    critic_loss: jax.Array
    policy_loss: jax.Array
    error: jax.Array
    metrics: dict[str, jax.Array]


def make_agent(
    environment_spec: EnvironmentSpec,
    config: Config,
    *,
    network: RecurrentNetwork | None = None,
    advantage: FeedForwardNetwork | None = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Agent:
    """ACER (Wang et al. 2017) as pure functions.

    Args:
      environment_spec: discrete actions, or continuous ones `[d]` with bounds; observations that
        the network takes.
      config: hyper-parameters.
      network: in place of the paper's; its outputs are `CategoricalOutput`s or `GaussianOutput`s.
      advantage: in place of the small one: `(params, features [F], action [d]) -> []`.
      optimizer: in place of RMSProp.

    Raises:
      ValueError: continuous actions without bounds, or observations that the default network cannot
        take.
    """
    actions = environment_spec.actions
    network = network or _make_network(environment_spec, config)
    if isinstance(actions, specs.DiscreteArray):
        advantage = None
    else:
        _check_bounds(actions)
        advantage = advantage or _make_advantage(environment_spec, network, config)
    policy = _make_policy(actions, advantage, config)
    optimizer = optimizer or optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.rmsprop(config.learning_rate, config.rmsprop_decay, config.rmsprop_epsilon),
    )
    memory_spec = jax.eval_shape(network.initial_state)
    stores_memory = bool(jax.tree.leaves(memory_spec))

    def init(key: jax.Array) -> LearnerState:
        key, network_key, advantage_key = jax.random.split(key, 3)
        params = {"network": network.init(network_key)}
        if advantage is not None:
            params["advantage"] = advantage.init(advantage_key)
        state = optimizer.init(params)
        return LearnerState(params, params["network"], state, jnp.zeros((), jnp.int32), key)

    def acting_params(state: LearnerState) -> Any:
        return state.params["network"]

    def begin(key: jax.Array, actor_id: jax.Array, num_actors: int) -> ActorState:
        del actor_id, num_actors  # all actors behave alike
        return ActorState(key, network.initial_state())

    def read(params: Any, state: ActorState, timestep: TimeStep) -> tuple[jax.Array, Any]:
        is_first = timestep.step_type == StepType.FIRST
        output, memory = network.step(params, timestep.observation, is_first, state.memory)
        return output.policy, memory

    def explore(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        statistics, memory = read(params, state, timestep)
        key, action_key = jax.random.split(state.key)
        action, extras = policy.draw(action_key, statistics)
        if stores_memory:
            extras["memory"] = state.memory
        return Decision(action, extras, ActorState(key, memory))

    def exploit(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        statistics, memory = read(params, state, timestep)
        _, extras = policy.draw(state.key, statistics)
        if stores_memory:
            extras["memory"] = state.memory
        return Decision(policy.greedy(statistics), extras, ActorState(state.key, memory))

    def steps(
        params: Any, average_params: Any, rows: Row, mask: jax.Array, key: jax.Array
    ) -> _Steps:
        memory = rows.extras["memory"] if stores_memory else network.initial_state()
        read = (rows.observation, rows.is_first, memory)
        output, _ = network.unroll(params["network"], *read)
        acted = mask & ~rows.is_last
        keys = jax.random.split(key, mask.shape[0])
        timed = rows._replace(extras={name: rows.extras[name] for name in policy.extras})
        of = jax.vmap(policy.estimates, in_axes=(None, 0, 0, 0, 0))(
            params.get("advantage"), keys, output, timed, acted
        )
        phi = jax.lax.stop_gradient(output.policy[:-1])
        estimator = estimators.acer if config.estimator == "acer" else estimators.tis
        terms = estimator(policy, config, phi, of, timed, mask)
        gradients = terms.gradients
        gradients += config.entropy_cost * jax.vmap(jax.grad(policy.entropy))(phi)
        rho = jnp.exp(of.log_rho[:-1])
        metrics = {
            "policy_entropy": jax.vmap(policy.entropy)(phi),
            "value": of.v[:-1],
            "importance_ratio": jnp.minimum(rho, config.truncation),
            "truncated": (rho > config.truncation).astype(jnp.float32),
        }
        if config.trust_region:
            average = network.unroll(average_params, *read)[0].policy[:-1]
            free = gradients
            gradients = estimators.constrain(policy, free, average, phi, config.delta)
            metrics["kl_to_average"] = jax.vmap(policy.kl)(average, phi)
            metrics["constrained"] = jnp.any(free != gradients, axis=-1).astype(jnp.float32)
        # Its gradient is minus the pull-back of `gradients` through the network.
        policy_loss = -jnp.sum(jax.lax.stop_gradient(gradients) * output.policy[:-1], axis=-1)
        return _Steps(terms.critic_losses, policy_loss, terms.errors, metrics)

    def loss(
        params: Any, average_params: Any, sample: Sample, keys: jax.Array
    ) -> tuple[jax.Array, Any]:
        rows = sample.rows
        each = jax.vmap(steps, in_axes=(None, None, 0, 0, 0))(
            params, average_params, rows, sample.mask, keys
        )
        # A source step counts if it was acted upon: no step from a last row to a first one.
        valid = sample.mask[:, 1:] & ~rows.is_last[:, :-1]  # [B, T]
        total = config.critic_cost * each.critic_loss + each.policy_loss
        weighted = sample.weights[:, None] * jnp.where(valid, total, 0.0)

        def mean(x: jax.Array, axis: int | None = None) -> jax.Array:
            return jnp.sum(jnp.where(valid, x, 0.0), axis) / jnp.maximum(jnp.sum(valid, axis), 1)

        metrics = {name: mean(values) for name, values in each.metrics.items()}
        metrics |= {"critic_loss": mean(each.critic_loss)}
        return jnp.mean(weighted), (mean(jnp.abs(each.error), axis=1), metrics)

    def update(state: LearnerState, sample: Sample) -> tuple[LearnerState, Update]:
        key, sample_key = jax.random.split(state.key)
        keys = jax.random.split(sample_key, sample.weights.shape[0])
        grads, (priorities, metrics) = jax.grad(loss, has_aux=True)(
            state.params, state.average_params, sample, keys
        )
        updates, optimizer_state = optimizer.update(grads, state.optimizer_state, state.params)
        params = optax.apply_updates(state.params, updates)
        average_params = optax.incremental_update(
            params["network"], state.average_params, 1.0 - config.average_decay
        )
        metrics |= {"priority": jnp.mean(priorities), "gradient_norm": optax.tree.norm(grads)}
        new_state = LearnerState(
            params, average_params, optimizer_state, state.num_updates + 1, key
        )
        return new_state, Update(priorities, metrics)

    sequence = SequenceSpec(
        length=config.sequence_length,
        period=config.sequence_length - 1,  # each transition in one segment
        crosses_episodes=True,
        extras=policy.extras | ({"memory": memory_spec} if stores_memory else {}),
        first_row_extras=("memory",) if stores_memory else (),
    )
    return Agent(init, acting_params, begin, explore, exploit, update, sequence)


def _check_bounds(actions: specs.Array) -> None:
    bounds = getattr(actions, "minimum", -np.inf), getattr(actions, "maximum", np.inf)
    if len(actions.shape) != 1 or not np.isfinite(bounds[0]).all() & np.isfinite(bounds[1]).all():
        raise ValueError(
            "ACER needs discrete actions, or continuous ones [d] with a finite minimum and "
            f"maximum, to which its Gaussian is clipped, got {actions!r}."
        )


def _make_network(environment_spec: EnvironmentSpec, config: Config) -> RecurrentNetwork:
    return make_acer_network(
        environment_spec.observations,
        environment_spec.actions,
        convolutions=config.convolutions,
        vector_sizes=config.vector_sizes,
        hidden_size=config.hidden_size,
        memory_size=config.memory_size,
        shared=config.shared_network,
    )


def _make_advantage(
    environment_spec: EnvironmentSpec, network: RecurrentNetwork, config: Config
) -> FeedForwardNetwork:
    observation = environment_spec.observations

    def features(key: jax.Array) -> jax.Array:
        image = jnp.zeros(observation.shape, observation.dtype)
        state = network.initial_state()
        output, _ = network.step(network.init(key), image, jnp.ones((), bool), state)
        features: jax.Array = output.features
        return features

    shape = jax.eval_shape(features, jax.random.key(0))
    return make_advantage_network(shape, environment_spec.actions, config.advantage_size)


def _make_policy(
    actions: specs.Array, advantage: FeedForwardNetwork | None, config: Config
) -> Policy:
    if advantage is None:
        return categorical(actions, truncation=config.truncation)
    return gaussian(
        actions,
        advantage.apply,
        truncation=config.truncation,
        std=config.policy_std,
        num_samples=config.num_dueling_samples,
        dueling=config.stochastic_dueling,
    )
