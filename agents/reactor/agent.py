"""Reactor: the agent. Reads top to bottom: state, then `make_agent`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from dm_env import StepType

from ... import losses
from ...datatypes import EnvironmentSpec, Row, Sample, SequenceSpec, TimeStep
from ...networks import ReactorOutput, RecurrentNetwork, make_reactor_network
from ..base import Agent, Decision, Update, count_actions
from .config import Config


class LearnerState(NamedTuple):
    """What the learner keeps.

    Attributes:
      params: the online ("moving") network's parameters.
      target_params: those of the target network, copied every `target_update_period` updates.
      optimizer_state: optax's.
      num_updates: int32 `[]`.
    """

    params: Any
    target_params: Any
    optimizer_state: optax.OptState
    num_updates: jax.Array


class ActorState(NamedTuple):
    """What an actor keeps between time steps.

    Attributes:
      key: PRNG key that draws actions.
      memory: the network's recurrent state before the next observation.
    """

    key: jax.Array
    memory: Any


class _Steps(NamedTuple):
    """Losses and errors of the source steps of one sequence, each `[T]`."""

    critic_loss: jax.Array
    policy_loss: jax.Array
    entropy: jax.Array
    priority: jax.Array
    q: jax.Array
    trace: jax.Array


def make_agent(
    environment_spec: EnvironmentSpec,
    config: Config,
    *,
    network: RecurrentNetwork | None = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Agent:
    """Reactor (Gruslys et al. 2018) as pure functions.

    Args:
      environment_spec: discrete actions; observations that the network takes.
      config: hyper-parameters.
      network: in place of the paper's; its outputs are `ReactorOutput`s with `num_atoms` atoms
        (one atom, the value itself, if not distributional) and policies without zeros.
      optimizer: in place of Adam without momentum.

    Raises:
      ValueError: continuous actions, or observations that the default network cannot take.
    """
    num_actions = count_actions("Reactor", environment_spec)
    network = network or _make_network(environment_spec, config)
    optimizer = optimizer or optax.adam(
        config.learning_rate, config.adam_b1, config.adam_b2, config.adam_epsilon
    )
    atoms = jnp.linspace(config.vmin, config.vmax, config.num_atoms)
    stores_memory = config.initial_state == "stored"

    def init(key: jax.Array) -> LearnerState:
        params = network.init(key)
        return LearnerState(params, params, optimizer.init(params), jnp.zeros((), jnp.int32))

    def acting_params(state: LearnerState) -> Any:
        return state.params

    def begin(key: jax.Array, actor_id: jax.Array, num_actors: int) -> ActorState:
        del actor_id, num_actors  # all actors behave alike
        return ActorState(key, network.initial_state())

    def read(params: Any, state: ActorState, timestep: TimeStep) -> tuple[jax.Array, Any, Any]:
        is_first = timestep.step_type == StepType.FIRST
        output, memory = network.step(params, timestep.observation, is_first, state.memory)
        extras = {"mu": output.policy}
        if stores_memory:
            extras["memory"] = state.memory
        return output.policy, extras, memory

    def explore(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        policy, extras, memory = read(params, state, timestep)
        key, action_key = jax.random.split(state.key)
        action = jax.random.categorical(action_key, jnp.log(policy)).astype(jnp.int32)
        return Decision(action, extras, ActorState(key, memory))

    def exploit(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        policy, extras, memory = read(params, state, timestep)
        action = jnp.argmax(policy).astype(jnp.int32)
        return Decision(action, extras, ActorState(state.key, memory))

    def action_values(output: ReactorOutput) -> jax.Array:
        """`[T, A, N]` -> `[T, A]`."""
        if config.distributional:
            return jax.nn.softmax(output.logits) @ atoms
        return output.logits[..., 0]

    def critic(
        online: ReactorOutput, target: ReactorOutput, rows: Row, c_t: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Loss, return and priority of each source step, `[T]`; `target` is at destinations."""
        a_tm1, a_t = rows.action[:-1], rows.action[1:]
        r_t = jnp.clip(rows.reward[1:], -config.max_abs_reward, config.max_abs_reward)
        discount_t = config.discount * rows.discount[1:]
        logits = jax.vmap(lambda logits, a: logits[a])(online.logits, a_tm1)  # [T, N]
        if config.distributional:
            probs_t = jax.nn.softmax(target.logits)
            q_star = losses.distributional_off_policy_target(
                atoms, probs_t, a_t, r_t, discount_t, target.policy, c_t
            )
            loss = jax.vmap(losses.categorical_cross_entropy)(q_star, logits)
            error = jax.vmap(losses.total_variation)(q_star, jax.nn.softmax(logits))
            return loss, q_star @ atoms, error
        returns = losses.expected_off_policy_return(
            action_values(target), a_t, r_t, discount_t, target.policy, c_t
        )
        td_error = returns - logits[:, 0]
        return 0.5 * jnp.square(td_error), returns, jnp.abs(td_error)

    def policy_loss(
        pi: jax.Array, mu: jax.Array, q: jax.Array, a: jax.Array, return_: jax.Array
    ) -> jax.Array:
        """The chosen estimator's loss at one source step, `[]`."""
        cap = config.policy_gradient_cap
        v = jax.lax.stop_gradient(pi @ q)
        if config.policy_gradient == "beta_loo":
            return losses.beta_loo_loss(pi, q, a, return_, losses.truncated_beta(mu[a], cap))
        if config.policy_gradient == "tislr":
            return losses.tislr_loss(pi, mu, q, v, a, return_, cap)
        return losses.islr_loss(pi, mu[a], v, a, return_)

    def trace_coefficients(target: ReactorOutput, rows: Row, mask: jax.Array) -> jax.Array:
        """Retrace's c at the destination steps, `[T]`; 0 where no action follows."""
        acted = mask[1:] & ~rows.is_last[1:]
        take = jax.vmap(lambda probs, a: probs[a])
        pi_a = take(target.policy, rows.action[1:])
        mu_a = jnp.where(acted, take(rows.extras["mu"][1:], rows.action[1:]), 1.0)
        return acted * losses.retrace_coefficients(pi_a, mu_a, config.retrace_lambda)

    def unroll(params: Any, target_params: Any, rows: Row) -> tuple[ReactorOutput, ReactorOutput]:
        """Online outputs at rows 0 .. T-1, target outputs at rows 1 .. T.

        The target network reads row 0 too (the paper unrolls it over frames 2-33 alone), so that
        both have the same memory of the same frames.
        """
        memory = rows.extras["memory"] if stores_memory else network.initial_state()
        sources = rows.observation[:-1], rows.is_first[:-1]
        online, _ = network.unroll(params, *sources, memory)
        target, _ = network.unroll(target_params, rows.observation, rows.is_first, memory)
        return online, jax.tree.map(lambda x: x[1:], target)

    def steps(params: Any, target_params: Any, rows: Row, mask: jax.Array) -> _Steps:
        online, target = unroll(params, target_params, rows)
        c_t = trace_coefficients(target, rows, mask)
        critic_loss, returns, priority = critic(online, target, rows, c_t)
        q = action_values(online)
        policy_losses = jax.vmap(policy_loss)(
            online.policy, rows.extras["mu"][:-1], q, rows.action[:-1], returns
        )
        entropy = jax.vmap(losses.policy_entropy)(online.policy)
        values = jnp.sum(online.policy * q, axis=-1)
        return _Steps(critic_loss, policy_losses, entropy, priority, values, c_t)

    def loss(params: Any, target_params: Any, sample: Sample) -> tuple[jax.Array, Any]:
        rows = sample.rows
        each = jax.vmap(steps, in_axes=(None, None, 0, 0))(params, target_params, rows, sample.mask)
        # A source step counts if it was acted upon: no step from a last row to a first one.
        valid = sample.mask[:, 1:] & ~rows.is_last[:, :-1]  # [B, T]
        total = each.critic_loss + each.policy_loss - config.entropy_cost * each.entropy
        weighted = sample.weights[:, None] * jnp.where(valid, total, 0.0)

        def mean(x: jax.Array, axis: int | None = None) -> jax.Array:
            return jnp.sum(jnp.where(valid, x, 0.0), axis) / jnp.maximum(jnp.sum(valid, axis), 1)

        metrics = {
            "critic_loss": mean(each.critic_loss),
            "policy_loss": mean(each.policy_loss),
            "policy_entropy": mean(each.entropy),
            "value": mean(each.q),
            "trace_coefficient": mean(each.trace),
            "largest_weight": jnp.max(sample.weights),
        }
        return jnp.mean(weighted), (mean(each.priority, axis=1), metrics)

    def update(state: LearnerState, sample: Sample) -> tuple[LearnerState, Update]:
        grads, (priorities, metrics) = jax.grad(loss, has_aux=True)(
            state.params, state.target_params, sample
        )
        updates, optimizer_state = optimizer.update(grads, state.optimizer_state, state.params)
        params = optax.apply_updates(state.params, updates)
        num_updates = state.num_updates + 1
        target_params = optax.periodic_update(
            params, state.target_params, num_updates, config.target_update_period
        )
        metrics |= {"priority": jnp.mean(priorities), "gradient_norm": optax.tree.norm(grads)}
        new_state = LearnerState(params, target_params, optimizer_state, num_updates)
        return new_state, Update(priorities, metrics)

    sequence = SequenceSpec(
        length=config.sequence_length,
        period=config.sequence_period,
        crosses_episodes=True,
        extras=_extras(num_actions, network if stores_memory else None),
        first_row_extras=("memory",) if stores_memory else (),
    )
    return Agent(init, acting_params, begin, explore, exploit, update, sequence)


def _make_network(environment_spec: EnvironmentSpec, config: Config) -> RecurrentNetwork:
    return make_reactor_network(
        environment_spec.observations,
        num_actions=count_actions("Reactor", environment_spec),
        num_atoms=config.num_atoms if config.distributional else 1,
        policy_epsilon=config.policy_epsilon,
        convolutions=config.convolutions,
        vector_sizes=config.vector_sizes,
        shared_size=config.shared_size,
        memory_size=config.memory_size,
        head_size=config.head_size,
        recurrent=config.recurrent,
    )


def _extras(num_actions: int, stored: RecurrentNetwork | None) -> dict[str, Any]:
    """What actors store with each row: mu(.|x_t), and the memory before t if it is stored."""
    extras: dict[str, Any] = {"mu": jax.ShapeDtypeStruct((num_actions,), jnp.float32)}
    if stored is not None:
        extras["memory"] = jax.eval_shape(stored.initial_state)
    return extras
