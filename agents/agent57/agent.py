"""Agent57: the learner, and the agent's functions put together."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ...datatypes import EnvironmentSpec, Sample, SequenceSpec
from ...networks import Agent57Networks, choose_convolutions, make_agent57_networks
from ..base import Agent, Update, count_actions
from ..evaluation_average import evaluates_average
from ..optimization import descend, gradient_metrics
from . import acting
from .acting import ActingParams
from .auxiliary import auxiliary_loss
from .config import Config
from .intrinsic import IntrinsicParams, learned_rewards
from .loss import value_loss
from .policies import HEADS, is_curious


class LearnerState(NamedTuple):
    """State of the learner; keys are the names of `HEADS`, or those of auxiliary networks.

    Attributes:
      params: of the online value networks.
      target_params: of the target networks, copied every `target_update_period` updates.
      optimizer_states: one for each value network.
      auxiliary_params: of `embedding`, `classifier`, `predictor`; empty without intrinsic reward.
      auxiliary_states: optimiser states, `embedding` (with the classifier) and `predictor`.
      random_params: of the random network, never trained; `()` without intrinsic reward.
      num_updates: int32 `[]`.
    """

    params: dict[str, Any]
    target_params: dict[str, Any]
    optimizer_states: dict[str, optax.OptState]
    auxiliary_params: dict[str, Any]
    auxiliary_states: dict[str, optax.OptState]
    random_params: Any
    num_updates: jax.Array


class Gradients(NamedTuple):
    """Gradients of both losses.

    Attributes:
      values: like `LearnerState.params`.
      auxiliary: like `LearnerState.auxiliary_params`.
    """

    values: dict[str, Any]
    auxiliary: dict[str, Any]


class Optimizers(NamedTuple):
    """The optimisers.

    Attributes:
      values: of each value network.
      auxiliary: by the names of `_AUXILIARY`.
    """

    values: optax.GradientTransformation
    auxiliary: dict[str, optax.GradientTransformation]


# Networks that share an optimiser: the embedding is trained through the classifier only.
_AUXILIARY = {"embedding": ("embedding", "classifier"), "predictor": ("predictor",)}


@evaluates_average("values")
def make_agent(
    environment_spec: EnvironmentSpec,
    config: Config,
    *,
    networks: Agent57Networks | None = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Agent:
    """Agent57 (Badia et al. 2020) as pure functions.

    Args:
      environment_spec: discrete actions; observations that the networks take.
      config: hyper-parameters.
      networks: in place of the paper's.
      optimizer: of each value network, in place of Adam with clipped gradients.

    Raises:
      ValueError: continuous actions, or observations that the default networks cannot take.
    """
    num_actions = count_actions("Agent57", environment_spec)
    networks = networks or _make_networks(environment_spec, config, num_actions)
    optimizers = _make_optimizers(config, optimizer)
    acts: dict[str, Any] = {"config": config, "networks": networks, "num_actions": num_actions}
    return Agent(
        init=functools.partial(init, config=config, networks=networks, optimizers=optimizers),
        acting_params=functools.partial(acting_params, config=config),
        begin=functools.partial(acting.begin, config=config, networks=networks),
        explore=functools.partial(acting.explore, **acts),
        exploit=functools.partial(acting.exploit, **acts),
        gradients=functools.partial(gradients, config=config, networks=networks),
        apply=functools.partial(apply, config=config, optimizers=optimizers),
        sequence=SequenceSpec(
            length=config.sequence_length,
            period=config.replay_period,
            crosses_episodes=False,
            extras=acting.extras_spec(config, networks),
            first_row_extras=("memory",),
        ),
    )


def init(
    key: jax.Array, *, config: Config, networks: Agent57Networks, optimizers: Optimizers
) -> LearnerState:
    """The first state: target networks equal the online ones."""
    heads = HEADS[config.values]
    *value_keys, auxiliary_key = jax.random.split(key, len(heads) + 1)
    keys = dict(zip(heads, value_keys, strict=True))
    params = {name: networks.value.init(keys[name]) for name in heads}
    curious = is_curious(config)
    auxiliary, random = _init_auxiliary(auxiliary_key, networks) if curious else ({}, ())
    return LearnerState(
        params=params,
        target_params=params,
        optimizer_states={name: optimizers.values.init(params[name]) for name in heads},
        auxiliary_params=auxiliary,
        auxiliary_states={
            group: optimizers.auxiliary[group].init(_part(auxiliary, group))
            for group in (_AUXILIARY if curious else ())
        },
        random_params=random,
        num_updates=jnp.zeros((), jnp.int32),
    )


def acting_params(state: LearnerState, *, config: Config) -> ActingParams:
    """The online value networks, and the networks of the intrinsic reward."""
    if not is_curious(config):
        return ActingParams(state.params, None)
    auxiliary = state.auxiliary_params
    intrinsic = IntrinsicParams(
        embedding=auxiliary["embedding"],
        predictor=auxiliary["predictor"],
        random=state.random_params,
        num_updates=state.num_updates,
    )
    return ActingParams(state.params, intrinsic)


def gradients(
    state: LearnerState, sample: Sample, *, config: Config, networks: Agent57Networks
) -> tuple[Gradients, Update]:
    """Gradients of the values' loss and of the auxiliary loss.

    Args:
      state: of the learner.
      sample: B sequences.
      config: hyper-parameters.
      networks: the agent's.
    """
    predictor = state.auxiliary_params.get("predictor")
    rewards = learned_rewards(config, networks, predictor, state.random_params, sample)
    of_values = functools.partial(value_loss, config=config, network=networks.value)
    value_grads, (priorities, metrics) = jax.grad(of_values, has_aux=True)(
        state.params, state.target_params, sample, rewards
    )
    for name in HEADS[config.values]:
        metrics |= gradient_metrics(value_grads[name], f"{name}_")
    auxiliary_grads: dict[str, Any] = {}
    if is_curious(config):
        of_auxiliary = functools.partial(auxiliary_loss, config=config, networks=networks)
        auxiliary_grads, others = jax.grad(of_auxiliary, has_aux=True)(
            state.auxiliary_params, state.random_params, sample
        )
        metrics |= others
    return Gradients(value_grads, auxiliary_grads), Update(priorities, metrics)


def apply(
    state: LearnerState, grads: Gradients, *, config: Config, optimizers: Optimizers
) -> LearnerState:
    """One step of all optimisers; every `target_update_period` steps copies the targets."""
    params, optimizer_states = {}, {}
    for name in HEADS[config.values]:
        params[name], optimizer_states[name] = descend(
            optimizers.values, grads.values[name], state.optimizer_states[name], state.params[name]
        )
    auxiliary_params, auxiliary_states = dict(state.auxiliary_params), {}
    for group in state.auxiliary_states:
        changed, auxiliary_states[group] = descend(
            optimizers.auxiliary[group],
            _part(grads.auxiliary, group),
            state.auxiliary_states[group],
            _part(auxiliary_params, group),
        )
        auxiliary_params |= changed
    num_updates = state.num_updates + 1
    target_params = optax.periodic_update(
        params, state.target_params, num_updates, config.target_update_period
    )
    return LearnerState(
        params,
        target_params,
        optimizer_states,
        auxiliary_params,
        auxiliary_states,
        state.random_params,
        num_updates,
    )


def _init_auxiliary(key: jax.Array, networks: Agent57Networks) -> tuple[dict[str, Any], Any]:
    """Parameters of the trained auxiliary networks, and of the random network."""
    keys = jax.random.split(key, 4)
    params = {
        "embedding": networks.embedding.init(keys[0]),
        "classifier": networks.classifier.init(keys[1]),
        "predictor": networks.novelty.init(keys[2]),
    }
    return params, networks.novelty.init(keys[3])


def _make_networks(
    environment_spec: EnvironmentSpec, config: Config, num_actions: int
) -> Agent57Networks:
    def scaled(size: int) -> int:
        return max(1, round(config.network_scale * size))

    observation, convolutions = environment_spec.observations, config.convolutions
    if convolutions is None and len(observation.shape) == 3:
        convolutions = tuple(choose_convolutions(observation.shape))
    return make_agent57_networks(
        observation,
        num_actions=num_actions,
        num_arms=config.num_arms,
        convolutions=[
            (scaled(size), kernel, stride) for size, kernel, stride in convolutions or ()
        ],
        vector_sizes=tuple(map(scaled, config.vector_sizes)),
        torso_size=scaled(config.torso_size),
        lstm_size=scaled(config.lstm_size),
        head_size=scaled(config.head_size),
        recurrent=config.recurrent,
        embedding_size=config.embedding_size,
        classifier_size=scaled(config.classifier_size),
        novelty_size=scaled(config.novelty_size),
    )


def _make_optimizers(config: Config, optimizer: optax.GradientTransformation | None) -> Optimizers:
    rate, decay = config.auxiliary_learning_rate, config.embedding_weight_decay
    return Optimizers(
        values=optimizer or _adam(config, config.learning_rate),
        auxiliary={"embedding": _adam(config, rate, decay), "predictor": _adam(config, rate)},
    )


def _adam(config: Config, learning_rate: float, decay: float = 0.0) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.add_decayed_weights(decay),
        optax.adam(learning_rate, config.adam_b1, config.adam_b2, config.adam_epsilon),
    )


def _part(networks: dict[str, Any], group: str) -> dict[str, Any]:
    return {name: networks[name] for name in _AUXILIARY[group]}
