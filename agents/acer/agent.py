"""ACER: the learner, and the agent's functions put together."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from dm_env import specs

from ...datatypes import EnvironmentSpec, Sample, SequenceSpec, TimeStep
from ...networks import (
    FeedForwardNetwork,
    MakeTorso,
    RecurrentNetwork,
    make_acer_network,
    make_advantage_network,
)
from .. import recurrent
from ..base import Agent, Decision, Update, check_network_or_torso
from ..evaluation_average import next_average
from ..frame_stack import sees_frame_stacks
from ..optimization import descend, gradient_metrics
from ..recurrent import ActorState
from ..reward_scale import scales_rewards
from . import acting
from .categorical import categorical
from .config import Config
from .gaussian import gaussian
from .loss import loss
from .policies import Policy


class ActingParams(NamedTuple):
    """What actors and evaluators need if these act with an average policy.

    Attributes:
      network: parameters, for `explore`.
      average: their bias-corrected average, for `exploit`.
    """

    network: Any
    average: Any


class LearnerState(NamedTuple):
    """State of the learner.

    Attributes:
      params: `{"network": ..., "advantage": ...}`, the second for continuous actions only: the
        advantage network, or Q's last layers without stochastic dueling.
      average_params: the network's, exponentially averaged over updates, for the trust region.
      evaluation_params: the same average without the initial parameters' share, if
        `exploit_average`; else ().
      optimizer_state: optax's.
      num_updates: int32 `[]`.
      key: PRNG key that draws the actions of stochastic dueling and of the bias correction.
    """

    params: Any
    average_params: Any
    evaluation_params: Any
    optimizer_state: optax.OptState
    num_updates: jax.Array
    key: jax.Array


@sees_frame_stacks
@scales_rewards
def make_agent(
    environment_spec: EnvironmentSpec,
    config: Config,
    *,
    network: RecurrentNetwork | None = None,
    torso: MakeTorso | None = None,
    advantage: FeedForwardNetwork | None = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Agent:
    """ACER (Wang et al. 2017) as pure functions.

    Args:
      environment_spec: discrete actions, or continuous ones `[d]` with bounds; observations that
        the network takes.
      config: hyper-parameters.
      network: in place of the paper's; its outputs are `CategoricalOutput`s or `GaussianOutput`s.
        Without stochastic dueling `features` must be of layers that only Q uses.
      torso: in place of the default network's torso, or of each of them if policy, V and Q do not
        share one: a function without arguments that makes a Haiku module (or a function) from
        observations `[T, ...]` to float features `[T, D]`. It is called inside of Haiku's
        transform.
      advantage: in place of the small one: `(params, features [F], action [d]) -> []`. Without
        stochastic dueling its output is Q.
      optimizer: in place of RMSProp with clipped gradients.

    Raises:
      ValueError: continuous actions without bounds, observations that the default network cannot
        take, a torso whose features have another shape, or a network and a torso.
    """
    check_network_or_torso(network, torso)
    network = network or _make_network(environment_spec, config, torso)
    advantage = _choose_advantage(environment_spec, config, network, advantage)
    policy = _make_policy(environment_spec.actions, advantage, config)
    optimizer = optimizer or optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.rmsprop(config.learning_rate, config.rmsprop_decay, config.rmsprop_epsilon),
    )
    stores_memory = recurrent.has_memory(network)
    parts: dict[str, Any] = {"policy": policy, "network": network, "stores_memory": stores_memory}
    memory = recurrent.memory_extras(jax.eval_shape(network.initial_state), stores_memory)
    explore: Callable[..., Decision] = functools.partial(acting.explore, **parts)
    exploit: Callable[..., Decision] = functools.partial(acting.exploit, **parts)
    needed: Callable[[LearnerState], Any] = acting_params
    if config.exploit_average:
        needed = both_networks
        explore, exploit = _of_part("network", explore), _of_part("average", exploit)
    return Agent(
        init=functools.partial(
            init, config=config, network=network, advantage=advantage, optimizer=optimizer
        ),
        acting_params=needed,
        begin=functools.partial(recurrent.begin, network=network),
        explore=explore,
        exploit=exploit,
        gradients=functools.partial(gradients, config=config, **parts),
        apply=functools.partial(apply, config=config, optimizer=optimizer),
        sequence=SequenceSpec(
            length=config.sequence_length,
            period=config.sequence_length - 1,  # each transition in one segment
            crosses_episodes=True,
            extras=policy.extras | memory,
            first_row_extras=tuple(memory),
        ),
    )


def init(
    key: jax.Array,
    *,
    config: Config,
    network: RecurrentNetwork,
    advantage: FeedForwardNetwork | None,
    optimizer: optax.GradientTransformation,
) -> LearnerState:
    """The first state: the average policy is the policy."""
    key, network_key, advantage_key = jax.random.split(key, 3)
    params = {"network": network.init(network_key)}
    if advantage is not None:
        params["advantage"] = advantage.init(advantage_key)
    return LearnerState(
        params,
        average_params=params["network"],
        evaluation_params=params["network"] if config.exploit_average else (),
        optimizer_state=optimizer.init(params),
        num_updates=jnp.zeros((), jnp.int32),
        key=key,
    )


def acting_params(state: LearnerState) -> Any:
    """The network's parameters; actors do without advantages."""
    return state.params["network"]


def both_networks(state: LearnerState) -> ActingParams:
    """The same, and their average."""
    return ActingParams(acting_params(state), state.evaluation_params)


def gradients(
    state: LearnerState,
    sample: Sample,
    *,
    config: Config,
    policy: Policy,
    network: RecurrentNetwork,
    stores_memory: bool,
) -> tuple[Any, Update]:
    """Gradients of the loss, a pytree like the parameters.

    Args:
      state: of the learner; `apply` replaces its key.
      sample: B segments.
      config: hyper-parameters.
      policy: the kind of policy.
      network: the agent's.
      stores_memory: whether rows hold the network's recurrent state.
    """
    _, sample_key = jax.random.split(state.key)
    keys = jax.random.split(sample_key, sample.weights.shape[0])
    bound = functools.partial(
        loss, config=config, policy=policy, network=network, stores_memory=stores_memory
    )
    grads, (priorities, metrics) = jax.grad(bound, has_aux=True)(
        state.params, state.average_params, sample, keys
    )
    metrics |= {"priority": jnp.mean(priorities), **gradient_metrics(grads)}
    return grads, Update(priorities, metrics)


def apply(
    state: LearnerState, grads: Any, *, config: Config, optimizer: optax.GradientTransformation
) -> LearnerState:
    """One step of the optimiser and of the average policy, and the next update's key."""
    params, optimizer_state = descend(optimizer, grads, state.optimizer_state, state.params)
    newest, num_updates = params["network"], state.num_updates + 1
    average_params = optax.incremental_update(
        newest, state.average_params, 1.0 - config.average_decay
    )
    evaluation_params = state.evaluation_params
    if config.exploit_average:
        evaluation_params = next_average(
            evaluation_params, newest, config.average_decay, num_updates
        )
    key, _ = jax.random.split(state.key)
    return LearnerState(
        params, average_params, evaluation_params, optimizer_state, num_updates, key
    )


def _of_part(name: str, act: Callable[..., Decision]) -> Callable[..., Decision]:
    """The function of one part of `ActingParams`."""

    def of_part(params: ActingParams, state: ActorState, timestep: TimeStep) -> Decision:
        return act(getattr(params, name), state, timestep)

    return of_part


def _make_network(
    environment_spec: EnvironmentSpec, config: Config, torso: MakeTorso | None = None
) -> RecurrentNetwork:
    return make_acer_network(
        environment_spec.observations,
        environment_spec.actions,
        convolutions=config.convolutions,
        vector_sizes=config.vector_sizes,
        hidden_size=config.hidden_size,
        memory_size=config.memory_size,
        shared=config.shared_network,
        separate_q=not config.stochastic_dueling,
        orthogonal_gain=config.orthogonal_gain,
        torso=torso,
    )


def _choose_advantage(
    environment_spec: EnvironmentSpec,
    config: Config,
    network: RecurrentNetwork,
    advantage: FeedForwardNetwork | None,
) -> FeedForwardNetwork | None:
    """The given advantage network or the default one; None for discrete actions."""
    actions = environment_spec.actions
    if isinstance(actions, specs.DiscreteArray):
        return None
    _check_bounds(actions)
    return advantage or _make_advantage(environment_spec, network, config)


def _check_bounds(actions: specs.Array) -> None:
    bounds = getattr(actions, "minimum", -np.inf), getattr(actions, "maximum", np.inf)
    if len(actions.shape) != 1 or not np.isfinite(bounds[0]).all() & np.isfinite(bounds[1]).all():
        raise ValueError(
            "ACER needs discrete actions, or continuous ones [d] with a finite minimum and "
            f"maximum, to which its Gaussian is clipped, got {actions!r}."
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
