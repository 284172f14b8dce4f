"""Reactor: the learner, and the agent's functions put together."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ...datatypes import EnvironmentSpec, Sample, SequenceSpec
from ...networks import MakeTorso, RecurrentNetwork, make_reactor_network
from .. import recurrent
from ..base import Agent, Update, check_network_or_torso, count_actions
from ..frame_stack import sees_frame_stacks
from ..optimization import descend, gradient_metrics
from ..reward_scale import scales_rewards
from . import acting
from .config import Config
from .loss import loss


class LearnerState(NamedTuple):
    """State of the learner.

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


@sees_frame_stacks
@scales_rewards
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
        (one atom, the value itself, if not distributional) and policies without zeros.
      torso: in place of the default network's torso: a function without arguments that makes a
        Haiku module (or a function) from observations `[T, ...]` to float features `[T, D]`. It is
        called inside of Haiku's transform.
      optimizer: in place of Adam without momentum.

    Raises:
      ValueError: continuous actions, observations that the default network cannot take, a torso
        whose features have another shape, or a network and a torso.
    """
    num_actions = count_actions("Reactor", environment_spec)
    check_network_or_torso(network, torso)
    network = network or _make_network(environment_spec, config, torso)
    optimizer = optimizer or optax.adam(
        config.learning_rate, config.adam_b1, config.adam_b2, config.adam_epsilon
    )
    stored = config.initial_state == "stored"
    return Agent(
        init=functools.partial(init, network=network, optimizer=optimizer),
        acting_params=acting_params,
        begin=functools.partial(recurrent.begin, network=network),
        explore=functools.partial(acting.explore, config=config, network=network),
        exploit=functools.partial(acting.exploit, config=config, network=network),
        gradients=functools.partial(
            gradients,
            config=config,
            network=network,
            atoms=jnp.linspace(config.vmin, config.vmax, config.num_atoms),
        ),
        apply=functools.partial(apply, config=config, optimizer=optimizer),
        sequence=SequenceSpec(
            length=config.sequence_length,
            period=config.sequence_period,
            crosses_episodes=True,
            extras=acting.extras_spec(num_actions, config, network),
            first_row_extras=(recurrent.MEMORY,) if stored else (),
        ),
    )


def init(
    key: jax.Array, *, network: RecurrentNetwork, optimizer: optax.GradientTransformation
) -> LearnerState:
    """The first state: both networks are the same."""
    params = network.init(key)
    return LearnerState(params, params, optimizer.init(params), jnp.zeros((), jnp.int32))


def acting_params(state: LearnerState) -> Any:
    """The online network's parameters."""
    return state.params


def gradients(
    state: LearnerState,
    sample: Sample,
    *,
    config: Config,
    network: RecurrentNetwork,
    atoms: jax.Array,
) -> tuple[Any, Update]:
    """Gradients of the loss, a pytree like the parameters.

    Args:
      state: of the learner.
      sample: B sequences.
      config: hyper-parameters.
      network: the agent's.
      atoms: `[N]`, values of the return's atoms.
    """
    bound = functools.partial(loss, config=config, network=network, atoms=atoms)
    grads, (priorities, metrics) = jax.grad(bound, has_aux=True)(
        state.params, state.target_params, sample
    )
    metrics |= {"priority": jnp.mean(priorities), **gradient_metrics(grads)}
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


def _make_network(
    environment_spec: EnvironmentSpec, config: Config, torso: MakeTorso | None = None
) -> RecurrentNetwork:
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
        torso=torso,
    )
