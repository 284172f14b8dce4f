"""Rainbow: double DQN, N-step returns, C51, dueling, prioritised replay, epsilon-greedy."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from retrax import losses
from retrax.agents import Agent, Decision, Update
from retrax.agents.base import count_actions
from retrax.agents.exploration import epsilon_greedy, epsilon_of_step
from retrax.agents.importance import anneal_weights, linear_importance_exponent
from retrax.agents.n_step import NStepTransitions, n_step_transitions
from retrax.agents.optimization import descend
from retrax.datatypes import EnvironmentSpec, Sample, SequenceSpec, TimeStep
from retrax.networks import FeedForwardNetwork as Network
from retrax.networks import make_categorical_dueling_network

from .config import Config


class LearnerState(NamedTuple):
    """State of the learner.

    Attributes:
      params: of the online network.
      target_params: of the target network.
      optimizer_state: optax's.
      num_updates: int32 `[]`.
    """

    params: Any
    target_params: Any
    optimizer_state: optax.OptState
    num_updates: jax.Array


class ActorState(NamedTuple):
    """State of an actor between time steps.

    Attributes:
      key: PRNG key of the exploration.
      steps: int32 `[]`, time steps of this actor.
      num_actors: int32 `[]`.
    """

    key: jax.Array
    steps: jax.Array
    num_actors: jax.Array


def make_agent(
    environment_spec: EnvironmentSpec,
    config: Config,
    *,
    network: Network | None = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Agent:
    """Rainbow as pure functions.

    Args:
      environment_spec: discrete actions.
      config: hyper-parameters.
      network: in place of the default one; from observations `[B, ...]` to logits `[B, A, N]`.
      optimizer: in place of Adam with clipped gradients.

    Raises:
      ValueError: continuous actions, observations that the default network cannot take, or a
        network with other outputs.
    """
    num_actions = count_actions("Rainbow", environment_spec)
    network = network or make_categorical_dueling_network(
        environment_spec.observations,
        num_actions=num_actions,
        num_atoms=config.num_atoms,
        vector_sizes=(config.hidden_size,),
        hidden_size=config.hidden_size,
    )
    _check_network(network, environment_spec, (num_actions, config.num_atoms))
    optimizer = optimizer or optax.chain(
        optax.clip_by_global_norm(10.0),  # Wang et al. 2016, for the dueling network
        optax.adam(config.learning_rate, eps=config.adam_epsilon),
    )
    parts = {"config": config, "network": network}
    return Agent(
        init=functools.partial(init, network=network, optimizer=optimizer),
        acting_params=lambda state: state.params,
        begin=begin,
        explore=functools.partial(explore, **parts),
        exploit=functools.partial(exploit, **parts),
        gradients=functools.partial(gradients, **parts),
        apply=functools.partial(apply, config=config, optimizer=optimizer),
        sequence=SequenceSpec(length=config.n_step + 1, crosses_episodes=False),
    )


def init(
    key: jax.Array, *, network: Network, optimizer: optax.GradientTransformation
) -> LearnerState:
    """The first state: both networks are the same."""
    params = network.init(key)
    return LearnerState(params, params, optimizer.init(params), jnp.zeros((), jnp.int32))


def begin(key: jax.Array, actor_id: jax.Array, num_actors: int) -> ActorState:
    """The state before the first time step. All actors behave alike."""
    del actor_id
    return ActorState(key, jnp.zeros((), jnp.int32), jnp.asarray(num_actors, jnp.int32))


def explore(
    params: Any, state: ActorState, timestep: TimeStep, *, config: Config, network: Network
) -> Decision:
    """Epsilon-greedy; epsilon falls with the time steps of all actors."""
    key, action_key = jax.random.split(state.key)
    schedule = optax.linear_schedule(1.0, config.epsilon, config.epsilon_steps)
    epsilon = epsilon_of_step(schedule, state.steps, state.num_actors)
    values = _values(network.apply(params, timestep.observation[None])[0], config)
    action, _ = epsilon_greedy(action_key, values, epsilon)
    return Decision(action, {}, state._replace(key=key, steps=state.steps + 1))


def exploit(
    params: Any, state: ActorState, timestep: TimeStep, *, config: Config, network: Network
) -> Decision:
    """The action with the largest mean return."""
    values = _values(network.apply(params, timestep.observation[None])[0], config)
    return Decision(jnp.argmax(values).astype(jnp.int32), {}, state)


def gradients(
    state: LearnerState, sample: Sample, *, config: Config, network: Network
) -> tuple[Any, Update]:
    """Gradients of the weighted mean of cross-entropies; priorities are the KL divergences."""
    reward = jnp.clip(sample.rows.reward, -config.max_abs_reward, config.max_abs_reward)
    sample = sample._replace(rows=sample.rows._replace(reward=reward))
    batch = n_step_transitions(sample, config.discount)
    targets = _targets(state, batch, config, network)
    beta = linear_importance_exponent(config.importance_exponent, config.importance_updates)
    weights = anneal_weights(sample.weights, beta(state.num_updates), normalize=True)

    def loss(params: Any) -> tuple[jax.Array, Any]:
        logits = _taken(network.apply(params, batch.observation_tm1), batch.action_tm1)
        each = jax.vmap(losses.categorical_cross_entropy)(targets, logits)
        return jnp.mean(weights * each), (each, logits)

    grads, (each, logits) = jax.grad(loss, has_aux=True)(state.params)
    priorities = jax.vmap(losses.categorical_kl_divergence)(targets, logits)
    metrics = {
        "loss": jnp.mean(each),
        "value": jnp.mean(_values(logits, config)),
        "gradient_norm": optax.tree.norm(grads),
    }
    return grads, Update(priorities, metrics)


def apply(
    state: LearnerState, grads: Any, *, config: Config, optimizer: optax.GradientTransformation
) -> LearnerState:
    """One step of the optimiser, and every `target_update_period` steps a new target network."""
    params, optimizer_state = descend(optimizer, grads, state.optimizer_state, state.params)
    num_updates = state.num_updates + 1
    target_params = optax.periodic_update(
        params, state.target_params, num_updates, config.target_update_period
    )
    return LearnerState(params, target_params, optimizer_state, num_updates)


def _check_network(network: Network, spec: EnvironmentSpec, wanted: tuple[int, int]) -> None:
    """Shapes of decisions do not reveal a wrong number of actions."""
    seen = jnp.zeros((1, *spec.observations.shape), spec.observations.dtype)
    out = jax.eval_shape(lambda key: network.apply(network.init(key), seen), jax.random.key(0))
    if out.shape[1:] != wanted:
        sizes = [f"{actions} actions x {atoms} atoms" for actions, atoms in (wanted, out.shape[1:])]
        raise ValueError(f"logits must be {sizes[0]}, got {sizes[1]}.")


def _targets(
    state: LearnerState, batch: NStepTransitions, config: Config, network: Network
) -> jax.Array:
    """C51's targets `[B, N]`, of the online network's greedy action in the target network."""
    values = _values(network.apply(state.params, batch.observation_t), config)
    logits = network.apply(state.target_params, batch.observation_t)
    probs = jax.nn.softmax(_taken(logits, jnp.argmax(values, axis=-1)))
    atoms = jnp.linspace(config.vmin, config.vmax, config.num_atoms)
    target = functools.partial(losses.categorical_bellman_target, atoms)
    return jax.vmap(target)(batch.return_, batch.discount, probs)


def _values(logits: jax.Array, config: Config) -> jax.Array:
    """Logits `[..., N]` -> mean returns `[...]`."""
    return jax.nn.softmax(logits) @ jnp.linspace(config.vmin, config.vmax, config.num_atoms)


def _taken(logits: jax.Array, actions: jax.Array) -> jax.Array:
    """Logits `[B, A, N]` of the actions `[B]`: `[B, N]`."""
    return jax.vmap(lambda logits, action: logits[action])(logits, actions)
