"""ACER (Wang et al. 2017): off-policy actor-critic, Retrace, bias correction, trust region.

`B` denotes the batch, `T` the steps of a segment, `D` the size of the policy's statistics phi.
Section and equation numbers are the paper's.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from dm_env import StepType, specs
from jax import Array

from ... import losses
from ...datatypes import EnvironmentSpec, Row, Sample, SequenceSpec, TimeStep
from ...networks import FeedForwardNetwork, MakeTorso, RecurrentNetwork
from ...networks.acer import make_acer_network, make_advantage_network
from .. import sequences
from ..base import Agent, Decision, Update, check_network_or_torso, takes_wrapper
from ..evaluation_average import evaluates_average
from ..frame_stack import sees_frame_stacks
from ..optimization import descend, gradient_metrics
from ..reward_scale import scales_rewards
from ..sequences import MEMORY, ActorState
from .config import Config
from .policies import Estimates, categorical, gaussian


class LearnerState(NamedTuple):
    """State of the learner.

    `params` are `{"network": ..., "advantage": ...}`, the second for continuous actions only: the
    advantage network, or Q's last layers without stochastic dueling.
    """

    params: Any
    average_params: Any  # the network's, averaged over updates, for the trust region
    optimizer_state: optax.OptState
    num_updates: Array  # int32 `[]`
    key: Array  # draws the actions of stochastic dueling and of the bias correction


class Terms(NamedTuple):
    """What an estimator finds at the source steps."""

    gradients: Array  # `[T, D]`, of the policy by phi, ascent, before entropy and projection
    critic_loss: Array  # `[T]`; takes gradients
    error: Array  # `[T]`, return minus estimate


@sees_frame_stacks
@scales_rewards
@evaluates_average()
@takes_wrapper
def make_agent(
    environment_spec: EnvironmentSpec,
    config: Config,
    *,
    network: RecurrentNetwork | None = None,
    torso: MakeTorso | None = None,
    advantage: FeedForwardNetwork | None = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Agent:
    """ACER as pure functions.

    Args:
      environment_spec: discrete actions, or continuous ones `[d]` with bounds; observations that
        the network takes.
      config: hyper-parameters.
      network: in place of the paper's; its outputs are `CategoricalOutput`s or `GaussianOutput`s.
        Without stochastic dueling `features` must be of layers that only Q uses.
      torso: in place of the default network's torso, or of each of them if policy, V and Q do not
        share one.
      advantage: in place of the small one: `(params, features [F], action [d]) -> []`. Without
        stochastic dueling its output is Q.
      optimizer: in place of RMSProp with clipped gradients.

    Raises:
      ValueError: continuous actions without bounds, observations that the default network cannot
        take, a torso whose features have another shape, or a network and a torso.
    """
    observations, actions = environment_spec.observations, environment_spec.actions
    check_network_or_torso(network, torso)
    net = network or make_acer_network(
        observations,
        actions,
        convolutions=config.convolutions,
        vector_sizes=config.vector_sizes,
        hidden_size=config.hidden_size,
        memory_size=config.memory_size,
        shared=config.shared_network,
        separate_q=not config.stochastic_dueling,
        orthogonal_gain=config.orthogonal_gain,
        torso=torso,
        masked=environment_spec.masks_actions,
    )
    advantage_net = None
    if isinstance(actions, specs.DiscreteArray):
        policy = categorical(actions, config)
    else:
        bounds = [getattr(actions, "minimum", np.inf), getattr(actions, "maximum", np.inf)]
        is_bounded = len(actions.shape) == 1 and all(np.isfinite(x).all() for x in bounds)
        if not is_bounded or environment_spec.masks_actions:
            raise ValueError(
                "ACER needs discrete actions, or continuous ones [d] with a finite minimum and "
                "maximum, to which its Gaussian is clipped, and without an action_mask, got "
                f"{actions!r}{' and a mask' * environment_spec.masks_actions}."
            )

        def features(key: Array) -> Any:
            seen, first = jnp.zeros(observations.shape, observations.dtype), jnp.ones((), bool)
            return net.step(net.init(key), seen, first, net.initial_state())[0].features

        advantage_net = advantage or make_advantage_network(
            jax.eval_shape(features, jax.random.key(0)), actions, config.advantage_size
        )
        policy = gaussian(actions, advantage_net.apply, config)
    rate, half_life = config.learning_rate, config.learning_rate_half_life
    rmsprop = optimizer or optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.rmsprop(
            rate if half_life is None else lambda n: rate / (1.0 + n / half_life),
            config.rmsprop_decay,
            config.rmsprop_epsilon,
        ),
    )

    def init(key: Array) -> LearnerState:
        """The average policy is the policy."""
        key, network_key, advantage_key = jax.random.split(key, 3)
        params = {"network": net.init(network_key)}
        if advantage_net is not None:
            params["advantage"] = advantage_net.init(advantage_key)
        num_updates = jnp.zeros((), jnp.int32)
        return LearnerState(params, params["network"], rmsprop.init(params), num_updates, key)

    def begin(key: Array, actor_id: Array, num_actors: int) -> ActorState:
        return ActorState(key, net.initial_state())

    def read(params: Any, state: ActorState, timestep: TimeStep) -> tuple[Any, Any]:
        """The network's output, and its memory before the next observation."""
        is_first = timestep.step_type == StepType.FIRST
        return net.step(params, timestep.observation, is_first, state.memory)

    def explore(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        """Draws an action from the policy."""
        output, memory = read(params, state, timestep)
        key, action_key = jax.random.split(state.key)
        action, extras = policy.draw(action_key, output.policy)
        return Decision(action, {**extras, MEMORY: state.memory}, ActorState(key, memory))

    def exploit(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        """The policy's most probable action, or its mean."""
        output, memory = read(params, state, timestep)
        _, extras = policy.draw(state.key, output.policy)
        action, extras = policy.greedy(output.policy), {**extras, MEMORY: state.memory}
        return Decision(action, extras, ActorState(state.key, memory))

    def rewards(rows: Row) -> Array:
        """At the destination steps, clipped and then scaled, `[T]`."""
        return config.reward_scale * sequences.rewards(rows, config.max_abs_reward)

    def acer(
        phi: Array, estimates: Estimates, log_rho: Array, rows: Row, continues_t: Array
    ) -> Terms:
        """ACER's estimator (Algorithms 2 and 3).

        phi, the policy's statistics at the sources, takes no gradient; `log_rho` are log pi / mu of
        the actions taken; `continues_t` tells where an action was taken at the destinations.
        """
        r_t, discount_t = rewards(rows), sequences.discounts(rows, config.discount)
        q_t, v_t, rho = estimates.q[1:], estimates.v[1:], jnp.exp(log_rho)
        if config.returns == "importance":
            critic_return = policy_return = losses.importance_sampled_return(
                v_t, r_t, discount_t, rho[1:], continues_t
            )
        else:
            cut_rho_t = jnp.where(continues_t, rho[1:], 0.0)
            critic_return = policy_return = losses.q_retrace(
                q_t, v_t, r_t, discount_t, cut_rho_t, policy.root, config.retrace_lambda
            )
            if policy.uses_opc:
                policy_return = losses.q_opc(q_t, v_t, r_t, discount_t, continues_t)
        sources, at = jax.tree.map(lambda x: x[:-1], (rows, estimates))
        gradients = jax.vmap(policy.gradient)(phi, sources, at, rho[:-1], policy_return)
        critic_loss = jax.vmap(policy.critic_loss)(critic_return, at, rho[:-1])
        return Terms(gradients, critic_loss, critic_return - at.q)

    def tis(
        phi: Array, estimates: Estimates, log_rho: Array, rows: Row, continues_t: Array
    ) -> Terms:
        """The baseline TIS (E.2), with arguments as `acer`; on-policy it is A3C's estimator."""
        v_tm1, discount_t = estimates.v[:-1], sequences.discounts(rows, config.discount)
        weights, advantages = losses.truncated_importance_trajectory(
            v_tm1,
            estimates.v[1:],
            rewards(rows),
            discount_t,
            log_rho[:-1],
            continues_t,
            config.truncation,
        )
        sources = jax.tree.map(lambda x: x[:-1], rows)
        scores = jax.vmap(jax.grad(policy.log_prob))(phi, sources)
        # Return minus V; V takes the gradient, `advantages` takes none.
        error = jax.lax.stop_gradient(advantages + v_tm1) - v_tm1
        gradients = (weights * advantages)[:, None] * scores
        return Terms(gradients, 0.5 * weights * jnp.square(error), error)

    estimate = acer if config.estimator == "acer" else tis

    def steps(
        params: Any, average_params: Any, rows: Row, mask: Array, key: Array
    ) -> dict[str, Array]:
        """Losses and metrics of the steps of one segment `[T + 1, ...]`, each `[T]`."""
        read = (rows.observation, rows.is_first, rows.extras[MEMORY])
        output, _ = net.unroll(params["network"], *read)
        rows = rows._replace(extras={name: rows.extras[name] for name in policy.extras})
        phi = jax.lax.stop_gradient(output.policy)
        log_prob = jax.vmap(policy.log_prob)
        log_rho = log_prob(phi, rows) - log_prob(rows.extras["mu"], rows)
        # 1 where no action was taken, since the row's action is meaningless there.
        log_rho = jnp.where(mask & ~rows.is_last, log_rho, 0.0)
        keys = jax.random.split(key, mask.shape[0])
        estimates = jax.vmap(policy.estimates, in_axes=(None, 0, 0, 0))(
            params.get("advantage"), keys, output, rows
        )
        phi, rho = phi[:-1], jnp.exp(log_rho[:-1])
        terms = estimate(phi, estimates, log_rho, rows, sequences.acted(rows, mask))
        gradients, entropy = terms.gradients, jnp.zeros_like(rho)
        if policy.entropy is not None:
            entropy = jax.vmap(policy.entropy)(phi)
            gradients += config.entropy_cost * jax.vmap(jax.grad(policy.entropy))(phi)
        metrics = {
            "policy_entropy": entropy,
            "value": estimates.v[:-1],
            "importance_ratio": jnp.minimum(rho, config.truncation),
            "truncated": (rho > config.truncation).astype(jnp.float32),
        }
        if config.trust_region:
            average, free = net.unroll(average_params, *read)[0].policy[:-1], gradients
            # Each step's gradient onto the trust region of that step (eq. 12).
            project = jax.vmap(losses.trust_region_projection, in_axes=(0, 0, None))
            kl_gradients = jax.vmap(jax.grad(policy.kl, argnums=1))(average, phi)
            gradients = project(free, kl_gradients, config.delta)
            metrics["kl_to_average"] = jax.vmap(policy.kl)(average, phi)
            metrics["constrained"] = jnp.any(free != gradients, axis=-1).astype(jnp.float32)
        # The gradient of this loss is minus `gradients`, back-propagated through the network.
        gradients = jax.lax.stop_gradient(gradients)
        return metrics | {
            "critic_loss": terms.critic_loss,
            "policy_loss": -jnp.sum(gradients * output.policy[:-1], axis=-1),
            "error": terms.error,
            "ratio": jnp.exp(log_rho[1:]),
        }

    def loss(params: Any, average_params: Any, sample: Sample, keys: Array) -> tuple[Array, Update]:
        """The weighted mean over B segments, each with a PRNG key."""
        rows, mask = sample.rows, sample.mask
        each = jax.vmap(steps, in_axes=(None, None, 0, 0, 0))(
            params, average_params, rows, mask, keys
        )
        valid = sequences.valid_steps(rows, mask)
        total = config.critic_cost * each["critic_loss"] + each.pop("policy_loss")
        priorities = sequences.masked_mean(jnp.abs(each.pop("error")), valid, axis=1)
        ratio = each.pop("ratio")
        metrics = {name: sequences.masked_mean(x, valid) for name, x in each.items()}
        metrics |= sequences.off_policyness(ratio, sequences.acted(rows, mask))
        metrics["priority"] = jnp.mean(priorities)
        weighted = sample.weights[:, None] * jnp.where(valid, total, 0.0)
        return jnp.mean(weighted), Update(priorities, metrics)

    def gradients(state: LearnerState, sample: Sample) -> tuple[Any, Update]:
        """Draws from one half of the key; `apply` keeps the other."""
        _, sample_key = jax.random.split(state.key)
        keys = jax.random.split(sample_key, sample.weights.shape[0])
        grads, update = jax.grad(loss, has_aux=True)(
            state.params, state.average_params, sample, keys
        )
        return grads, update._replace(metrics=update.metrics | gradient_metrics(grads))

    def apply(state: LearnerState, grads: Any) -> LearnerState:
        params, optimizer_state = descend(rmsprop, grads, state.optimizer_state, state.params)
        average_params = optax.incremental_update(
            params["network"], state.average_params, 1.0 - config.average_decay
        )
        key, _ = jax.random.split(state.key)
        return LearnerState(params, average_params, optimizer_state, state.num_updates + 1, key)

    return Agent(
        init=init,
        acting_params=lambda state: state.params["network"],  # actors do without advantages
        begin=begin,
        explore=explore,
        exploit=exploit,
        gradients=gradients,
        apply=apply,
        sequence=SequenceSpec(
            length=config.sequence_length,
            period=config.sequence_length - 1,  # each transition in one segment
            crosses_episodes=True,
            extras={**policy.extras, MEMORY: jax.eval_shape(net.initial_state)},
            first_row_extras=(MEMORY,),
        ),
    )
