"""Rainbow: double DQN, N-step returns, C51, dueling, prioritised replay, epsilon-greedy."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from retrax import losses
from retrax.agents import Agent, Decision, Update
from retrax.agents.base import count_actions
from retrax.agents.exploration import epsilon_greedy
from retrax.agents.optimization import descend
from retrax.agents.sequences import NStepTransitions, n_step_transitions
from retrax.datatypes import EnvironmentSpec, Sample, SequenceSpec, TimeStep
from retrax.networks import FeedForwardNetwork as Network

from .config import Config
from .network import make_network


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


def anneal_weights(weights: jax.Array, exponent: jax.Array | float) -> jax.Array:
    """Weights (1 / (R P))^beta, divided by the largest of the batch (Schaul et al. 2016).

    Args:
      weights: `[B]`, of exponent 1: 1 / (R P) for R sequences in the replay; > 0.
      exponent: beta `[]`, in [0, 1].

    Returns:
      float32 `[B]`, in (0, 1].
    """
    return jnp.power(weights / jnp.max(weights), exponent)


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
    net = network or make_network(
        environment_spec.observations,
        num_actions=num_actions,
        num_atoms=config.num_atoms,
        hidden_size=config.hidden_size,
    )
    _check_network(net, environment_spec, (num_actions, config.num_atoms))
    adam = optimizer or optax.chain(
        optax.clip_by_global_norm(10.0),  # Wang et al. 2016, for the dueling network
        optax.adam(config.learning_rate, eps=config.adam_epsilon),
    )
    atoms = jnp.linspace(config.vmin, config.vmax, config.num_atoms)
    epsilon_of = optax.linear_schedule(1.0, config.epsilon, config.epsilon_steps)
    beta_of = optax.linear_schedule(config.importance_exponent, 1.0, config.importance_updates)

    def init(key: jax.Array) -> LearnerState:
        params = net.init(key)
        return LearnerState(params, params, adam.init(params), jnp.zeros((), jnp.int32))

    def begin(key: jax.Array, actor_id: jax.Array, num_actors: int) -> ActorState:
        """All actors behave alike."""
        del actor_id
        return ActorState(key, jnp.zeros((), jnp.int32), jnp.asarray(num_actors, jnp.int32))

    def mean_returns(logits: jax.Array) -> jax.Array:
        """Logits `[..., N]` -> means `[...]`."""
        return jax.nn.softmax(logits) @ atoms

    def action_values(params: Any, timestep: TimeStep) -> jax.Array:
        return mean_returns(net.apply(params, timestep.observation[None])[0])

    def explore(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        """Epsilon-greedy; epsilon falls with the time steps of all actors, which step alike."""
        key, action_key = jax.random.split(state.key)
        epsilon = jnp.asarray(epsilon_of(state.steps * state.num_actors), jnp.float32)
        action, _ = epsilon_greedy(action_key, action_values(params, timestep), epsilon)
        return Decision(action, {}, state._replace(key=key, steps=state.steps + 1))

    def exploit(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        """The action with the largest mean return."""
        action = jnp.argmax(action_values(params, timestep))
        return Decision(action.astype(jnp.int32), {}, state)

    def taken(logits: jax.Array, actions: jax.Array) -> jax.Array:
        """Logits `[B, A, N]` of the actions `[B]`: `[B, N]`."""
        return jax.vmap(lambda logits, action: logits[action])(logits, actions)

    def targets(state: LearnerState, batch: NStepTransitions) -> jax.Array:
        """C51's `[B, N]`, of the online network's greedy action in the target network."""
        greedy = jnp.argmax(mean_returns(net.apply(state.params, batch.observation_t)), axis=-1)
        probs = jax.nn.softmax(taken(net.apply(state.target_params, batch.observation_t), greedy))
        target = jax.vmap(losses.categorical_bellman_target, in_axes=(None, 0, 0, 0))
        return target(atoms, batch.return_, batch.discount, probs)

    def gradients(state: LearnerState, sample: Sample) -> tuple[Any, Update]:
        """Of the weighted mean of cross-entropies; priorities are the KL divergences."""
        reward = jnp.clip(sample.rows.reward, -config.max_abs_reward, config.max_abs_reward)
        sample = sample._replace(rows=sample.rows._replace(reward=reward))
        batch = n_step_transitions(sample, config.discount)
        wanted = targets(state, batch)
        weights = anneal_weights(sample.weights, beta_of(state.num_updates))

        def loss(params: Any) -> tuple[jax.Array, Any]:
            logits = taken(net.apply(params, batch.observation_tm1), batch.action_tm1)
            each = jax.vmap(losses.categorical_cross_entropy)(wanted, logits)
            return jnp.mean(weights * each), (each, logits)

        grads, (each, logits) = jax.grad(loss, has_aux=True)(state.params)
        priorities = jax.vmap(losses.categorical_kl_divergence)(wanted, logits)
        metrics = {
            "loss": jnp.mean(each),
            "value": jnp.mean(mean_returns(logits)),
            "gradient_norm": optax.tree.norm(grads),
        }
        return grads, Update(priorities, metrics)

    def apply(state: LearnerState, grads: Any) -> LearnerState:
        params, optimizer_state = descend(adam, grads, state.optimizer_state, state.params)
        num_updates = state.num_updates + 1
        target_params = optax.periodic_update(
            params, state.target_params, num_updates, config.target_update_period
        )
        return LearnerState(params, target_params, optimizer_state, num_updates)

    return Agent(
        init=init,
        acting_params=lambda state: state.params,
        begin=begin,
        explore=explore,
        exploit=exploit,
        gradients=gradients,
        apply=apply,
        sequence=SequenceSpec(length=config.n_step + 1, crosses_episodes=False),
    )


def _check_network(network: Network, spec: EnvironmentSpec, wanted: tuple[int, int]) -> None:
    """Shapes of decisions do not reveal a wrong number of actions."""
    seen = jnp.zeros((1, *spec.observations.shape), spec.observations.dtype)
    out = jax.eval_shape(lambda key: network.apply(network.init(key), seen), jax.random.key(0))
    if out.shape[1:] != wanted:
        sizes = [f"{actions} actions x {atoms} atoms" for actions, atoms in (wanted, out.shape[1:])]
        raise ValueError(f"logits must be {sizes[0]}, got {sizes[1]}.")
