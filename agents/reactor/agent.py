"""Reactor (Gruslys et al. 2018): distributional Retrace, beta-leave-one-out.

`B` denotes the batch, `T` the steps of a sequence, `A` the actions, `N` the atoms. Section and
equation numbers are the paper's.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from dm_env import StepType
from jax import Array

from ... import losses
from ...datatypes import EnvironmentSpec, Row, Sample, SequenceSpec, TimeStep
from ...networks import MakeTorso, ReactorOutput, RecurrentNetwork, make_reactor_network
from ...networks.critic_heads import support_metrics
from .. import sequences
from ..base import Agent, Decision, Update, check_network_or_torso, count_actions, takes_wrapper
from ..exploration import draw_action
from ..frame_stack import sees_frame_stacks
from ..optimization import descend, gradient_metrics
from ..reward_scale import scales_rewards
from ..sequences import MEMORY, ActorState
from .config import Config


class LearnerState(NamedTuple):
    """State of the learner."""

    params: Any  # of the online ("moving") network
    target_params: Any  # copied every `target_update_period` updates
    optimizer_state: optax.OptState
    num_updates: Array  # int32 `[]`


@sees_frame_stacks
@scales_rewards
@takes_wrapper
def make_agent(
    environment_spec: EnvironmentSpec,
    config: Config,
    *,
    network: RecurrentNetwork | None = None,
    torso: MakeTorso | None = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Agent:
    """Reactor (Gruslys et al. 2018) as pure functions.

    Args:
      environment_spec: discrete actions; observations that the network takes.
      config: hyper-parameters.
      network: in place of the paper's; its outputs are `ReactorOutput`s with `num_atoms` atoms
        (one atom, the value itself, if not distributional), policies 0 for illegal actions only.
      torso: in place of the default network's torso.
      optimizer: in place of Adam without momentum.

    Raises:
      ValueError: continuous actions, observations that the default network cannot take, a torso
        whose features have another shape, or a network and a torso.
    """
    num_actions = count_actions("Reactor", environment_spec)
    check_network_or_torso(network, torso)
    net = network or make_reactor_network(
        environment_spec.observations,
        num_actions=num_actions,
        num_atoms=config.num_atoms if config.distributional else 1,
        policy_epsilon=config.policy_epsilon,
        convolutions=config.convolutions,
        vector_sizes=config.vector_sizes,
        masked=environment_spec.masks_actions,
        shared_size=config.shared_size,
        memory_size=config.memory_size,
        head_size=config.head_size,
        orthogonal_gain=config.orthogonal_gain,
        recurrent=config.recurrent,
        torso=torso,
    )
    opt = optimizer or optax.adam(
        config.learning_rate, config.adam_b1, config.adam_b2, config.adam_epsilon
    )
    atoms = jnp.linspace(config.vmin, config.vmax, config.num_atoms)
    stored = config.initial_state == "stored"

    def init(key: Array) -> LearnerState:
        params = net.init(key)
        return LearnerState(params, params, opt.init(params), jnp.zeros((), jnp.int32))

    def begin(key: Array, actor_id: Array, num_actors: int) -> ActorState:
        return ActorState(key, net.initial_state())

    def extras(policy: Any, memory: Any) -> dict[str, Any]:
        """Of a row: mu(.|x_t), and the recurrent state before t if it is stored."""
        return {"mu": policy, MEMORY: memory} if stored else {"mu": policy}

    def read(params: Any, state: ActorState, timestep: TimeStep) -> tuple[Any, Any]:
        is_first = timestep.step_type == StepType.FIRST
        return net.step(params, timestep.observation, is_first, state.memory)

    def explore(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        output, memory = read(params, state, timestep)
        key, action_key = jax.random.split(state.key)
        action = draw_action(action_key, output.policy)
        return Decision(action, extras(output.policy, state.memory), ActorState(key, memory))

    def exploit(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        output, memory = read(params, state, timestep)
        action = jnp.argmax(output.policy).astype(jnp.int32)
        return Decision(action, extras(output.policy, state.memory), ActorState(state.key, memory))

    def action_values(output: ReactorOutput) -> Array:
        """The means of the return distributions, or the values themselves: `[T, A]`."""
        if config.distributional:
            return jax.nn.softmax(output.logits) @ atoms
        return output.logits[..., 0]

    def critic(
        online: ReactorOutput, target: ReactorOutput, rows: Row, c_t: Array
    ) -> tuple[Array, Array, Array, dict[str, Array]]:
        """Loss, return (3.2), priority (3.3) and metrics of each source step, `[T]`.

        `target` and `c_t` are at the destinations. The metrics tell whether the atoms suit the
        returns: predicted mass of the end atoms, and clipped mass of one-step targets.
        """
        a_t, r_t = rows.action[1:], sequences.rewards(rows, config.max_abs_reward)
        discount_t = sequences.discounts(rows, config.discount)
        logits = sequences.taken(online.logits, rows.action[:-1])  # [T, N]
        if not config.distributional:
            q_t = action_values(target)
            returns = losses.expected_off_policy_return(
                q_t, a_t, r_t, discount_t, target.policy, c_t
            )
            td_error = returns - logits[:, 0]
            return 0.5 * jnp.square(td_error), returns, jnp.abs(td_error), {}
        probs, probs_t = jax.nn.softmax(logits), jax.nn.softmax(target.logits)
        q_star = losses.distributional_off_policy_target(
            atoms, probs_t, a_t, r_t, discount_t, target.policy, c_t
        )
        cross_entropy = jax.vmap(losses.categorical_cross_entropy)(q_star, logits)
        error = jax.vmap(losses.total_variation)(q_star, probs)
        expected_t = jnp.einsum("ta,tan->tn", target.policy, probs_t)
        support = jax.vmap(support_metrics, in_axes=(None, 0, 0, 0, 0))(
            atoms, probs, r_t, discount_t, expected_t
        )
        return cross_entropy, q_star @ atoms, error, support

    def policy_loss(pi: Array, mu: Array, q: Array, a: Array, return_: Array) -> Array:
        """The chosen estimator (3.1) at one source step, `[]`; `pi`, `mu` and `q` are `[A]`."""
        cap, v = config.policy_gradient_cap, jax.lax.stop_gradient(pi @ q)
        if config.policy_gradient == "beta_loo":
            return losses.beta_loo_loss(pi, q, a, return_, losses.truncated_beta(mu[a], cap))
        if config.policy_gradient == "tislr":
            return losses.tislr_loss(pi, mu, q, v, a, return_, cap)
        return losses.islr_loss(pi, mu[a], v, a, return_)

    def steps(params: Any, target_params: Any, rows: Row, mask: Array) -> dict[str, Any]:
        """Losses and metrics of the source steps of one sequence `[T + 1, ...]`, each `[T]`."""
        memory = rows.extras[MEMORY] if stored else net.initial_state()
        online, _ = net.unroll(params, rows.observation[:-1], rows.is_first[:-1], memory)
        # Over row 0 too, so that both recurrent states include the same frames. The paper unrolls
        # the target network over frames 2 to 33 only.
        target, _ = net.unroll(target_params, rows.observation, rows.is_first, memory)
        target = jax.tree.map(lambda x: x[1:], target)
        # pi / mu and Retrace's c at the destinations; c is 0 where no action follows.
        acted = sequences.acted(rows, mask)
        pi_a = sequences.taken(target.policy, rows.action[1:])
        mu_a = jnp.where(acted, sequences.taken(rows.extras["mu"][1:], rows.action[1:]), 1.0)
        c_t = acted * losses.retrace_coefficients(pi_a, mu_a, config.retrace_lambda)
        critic_loss, returns, priority, support = critic(online, target, rows, c_t)
        q = action_values(online)
        return {
            "critic_loss": critic_loss,
            "policy_loss": jax.vmap(policy_loss)(
                online.policy, rows.extras["mu"][:-1], q, rows.action[:-1], returns
            ),
            "policy_entropy": jax.vmap(losses.policy_entropy)(online.policy),
            "value": jnp.sum(online.policy * q, axis=-1),
            "trace_coefficient": c_t,
            **support,
            "priority": priority,
            "ratio": pi_a / mu_a,
        }

    def loss(params: Any, state: LearnerState, sample: Sample) -> tuple[Array, Update]:
        """The weighted mean over B sequences (3.3); priorities are means over their steps."""
        rows, mask = sample.rows, sample.mask
        each = jax.vmap(steps, in_axes=(None, None, 0, 0))(params, state.target_params, rows, mask)
        valid = sequences.valid_steps(rows, mask)
        total = each["critic_loss"] + each["policy_loss"]
        entropy_cost: Any = config.entropy_cost
        if config.entropy_half_life is not None:
            entropy_cost /= 1.0 + state.num_updates / config.entropy_half_life
        total -= entropy_cost * each["policy_entropy"]
        priorities = sequences.masked_mean(each.pop("priority"), valid, axis=1)
        ratio = each.pop("ratio")
        metrics = {name: sequences.masked_mean(x, valid) for name, x in each.items()}
        metrics |= {"largest_weight": jnp.max(sample.weights), "priority": jnp.mean(priorities)}
        metrics |= sequences.off_policyness(ratio, sequences.acted(rows, mask))
        weighted = sample.weights[:, None] * jnp.where(valid, total, 0.0)
        return jnp.mean(weighted), Update(priorities, metrics)

    def gradients(state: LearnerState, sample: Sample) -> tuple[Any, Update]:
        grads, update = jax.grad(loss, has_aux=True)(state.params, state, sample)
        return grads, update._replace(metrics=update.metrics | gradient_metrics(grads))

    def apply(state: LearnerState, grads: Any) -> LearnerState:
        params, optimizer_state = descend(opt, grads, state.optimizer_state, state.params)
        num_updates = state.num_updates + 1
        target_params = optax.periodic_update(
            params, state.target_params, num_updates, config.target_update_period
        )
        return LearnerState(params, target_params, optimizer_state, num_updates)

    memory = jax.eval_shape(net.initial_state)
    return Agent(
        init=init,
        acting_params=lambda state: state.params,
        begin=begin,
        explore=explore,
        exploit=exploit,
        gradients=gradients,
        apply=apply,
        sequence=SequenceSpec(
            length=config.sequence_length,
            period=config.sequence_period,
            crosses_episodes=True,
            extras=extras(jax.ShapeDtypeStruct((num_actions,), jnp.float32), memory),
            first_row_extras=(MEMORY,) if stored else (),
        ),
    )
