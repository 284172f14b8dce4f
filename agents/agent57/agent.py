"""Agent57: the agent. Acting is in `acting`, the losses in `learning`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ...datatypes import EnvironmentSpec, Sample, SequenceSpec
from ...networks import Agent57Networks, make_agent57_networks
from ..base import Agent, Update, count_actions
from . import bandit
from .acting import ActingParams, make_acting
from .bandit import BanditState
from .config import Config
from .intrinsic import IntrinsicParams
from .learning import add_episodes, make_auxiliary_loss, make_value_loss
from .policies import HEADS


class LearnerState(NamedTuple):
    """What the learner keeps; dictionaries go by the names of `HEADS`, or of auxiliary networks.

    Attributes:
      params: the online value networks'.
      target_params: those of the target networks, copied every `target_update_period` updates.
      optimizer_states: one for each value network.
      auxiliary_params: of `embedding`, `classifier`, `predictor`; empty without intrinsic reward.
      auxiliary_states: optimiser states, `embedding` (with the classifier) and `predictor`.
      random_params: the random network's, which nothing trains; `()` without intrinsic reward.
      bandit: what the arms paid in the sampled sequences.
      num_updates: int32 `[]`.
    """

    params: dict[str, Any]
    target_params: dict[str, Any]
    optimizer_states: dict[str, optax.OptState]
    auxiliary_params: dict[str, Any]
    auxiliary_states: dict[str, optax.OptState]
    random_params: Any
    bandit: BanditState
    num_updates: jax.Array


# Which networks share an optimiser: the embedding is trained through the classifier alone.
_AUXILIARY = {"embedding": ("embedding", "classifier"), "predictor": ("predictor",)}


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
    optimizer = optimizer or _adam(config, config.learning_rate)
    auxiliary_optimizers = {
        "embedding": _adam(config, config.auxiliary_learning_rate, config.embedding_weight_decay),
        "predictor": _adam(config, config.auxiliary_learning_rate),
    }
    heads, is_curious = HEADS[config.values], config.values != "extrinsic"
    acting = make_acting(config, networks, num_actions)
    value_loss = make_value_loss(config, networks.value)
    auxiliary_loss = make_auxiliary_loss(config, networks)

    def init(key: jax.Array) -> LearnerState:
        *value_keys, auxiliary_key = jax.random.split(key, len(heads) + 1)
        keys = dict(zip(heads, value_keys, strict=True))
        params = {name: networks.value.init(keys[name]) for name in heads}
        auxiliary, random = init_auxiliary(auxiliary_key) if is_curious else ({}, ())
        return LearnerState(
            params=params,
            target_params=params,
            optimizer_states={name: optimizer.init(params[name]) for name in heads},
            auxiliary_params=auxiliary,
            auxiliary_states={
                group: auxiliary_optimizers[group].init(_part(auxiliary, group))
                for group in (_AUXILIARY if is_curious else ())
            },
            random_params=random,
            bandit=bandit.init(config.evaluator_window),
            num_updates=jnp.zeros((), jnp.int32),
        )

    def init_auxiliary(key: jax.Array) -> tuple[dict[str, Any], Any]:
        keys = jax.random.split(key, 4)
        params = {
            "embedding": networks.embedding.init(keys[0]),
            "classifier": networks.classifier.init(keys[1]),
            "predictor": networks.novelty.init(keys[2]),
        }
        return params, networks.novelty.init(keys[3])

    def acting_params(state: LearnerState) -> ActingParams:
        auxiliary, intrinsic = state.auxiliary_params, None
        if is_curious:
            intrinsic = IntrinsicParams(
                auxiliary["embedding"], auxiliary["predictor"], state.random_params
            )
        return ActingParams(state.params, intrinsic, state.bandit)

    def update_values(
        state: LearnerState, sample: Sample
    ) -> tuple[LearnerState, jax.Array, dict[str, jax.Array]]:
        grads, (priorities, metrics) = jax.grad(value_loss, has_aux=True)(
            state.params, state.target_params, sample
        )
        params, optimizer_states = {}, {}
        for name in heads:
            params[name], optimizer_states[name] = _descend(
                optimizer, grads[name], state.optimizer_states[name], state.params[name]
            )
            metrics[f"{name}_gradient_norm"] = optax.tree.norm(grads[name])
        num_updates = state.num_updates + 1
        target_params = optax.periodic_update(
            params, state.target_params, num_updates, config.target_update_period
        )
        state = state._replace(
            params=params,
            target_params=target_params,
            optimizer_states=optimizer_states,
            num_updates=num_updates,
        )
        return state, priorities, metrics

    def update_auxiliary(
        state: LearnerState, sample: Sample
    ) -> tuple[LearnerState, dict[str, jax.Array]]:
        grads, metrics = jax.grad(auxiliary_loss, has_aux=True)(
            state.auxiliary_params, state.random_params, sample
        )
        params, states = dict(state.auxiliary_params), {}
        for group in _AUXILIARY:
            changed, states[group] = _descend(
                auxiliary_optimizers[group],
                _part(grads, group),
                state.auxiliary_states[group],
                _part(params, group),
            )
            params |= changed
        return state._replace(auxiliary_params=params, auxiliary_states=states), metrics

    def update(state: LearnerState, sample: Sample) -> tuple[LearnerState, Update]:
        state, priorities, metrics = update_values(state, sample)
        if is_curious:
            state, others = update_auxiliary(state, sample)
            metrics |= others
        state = state._replace(bandit=add_episodes(state.bandit, sample))
        metrics["best_arm"] = bandit.best(state.bandit, config.num_arms).astype(jnp.float32)
        return state, Update(priorities, metrics)

    sequence = SequenceSpec(
        length=config.sequence_length,
        period=config.replay_period,
        crosses_episodes=False,
        extras=_extras(networks, heads),
        first_row_extras=("memory",),
        episode_extras=("arm", "intrinsic_return", "epsilon"),
        evaluation_modes=("greedy_arm", "sampled_arm"),
    )
    return Agent(
        init, acting_params, acting.begin, acting.explore, acting.exploit, update, sequence
    )


def _make_networks(
    environment_spec: EnvironmentSpec, config: Config, num_actions: int
) -> Agent57Networks:
    def scaled(size: int) -> int:
        return max(1, round(config.network_scale * size))

    return make_agent57_networks(
        environment_spec.observations,
        num_actions=num_actions,
        num_arms=config.num_arms,
        convolutions=[
            (scaled(size), kernel, stride) for size, kernel, stride in config.convolutions
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


def _adam(config: Config, learning_rate: float, decay: float = 0.0) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.add_decayed_weights(decay),
        optax.adam(learning_rate, config.adam_b1, config.adam_b2, config.adam_epsilon),
    )


def _descend(
    optimizer: optax.GradientTransformation, grads: Any, state: optax.OptState, params: Any
) -> tuple[Any, optax.OptState]:
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state


def _part(networks: dict[str, Any], group: str) -> dict[str, Any]:
    return {name: networks[name] for name in _AUXILIARY[group]}


def _extras(networks: Agent57Networks, heads: tuple[str, ...]) -> dict[str, Any]:
    """What actors store with each row, besides what arrives: appendix E's transition."""
    number = jax.ShapeDtypeStruct((), jnp.float32)
    index = jax.ShapeDtypeStruct((), jnp.int32)
    state = jax.eval_shape(networks.value.initial_state)
    return {
        "arm": index,
        "previous_action": index,
        "intrinsic_reward": number,
        "mu": number,
        "epsilon": number,
        "extrinsic_return": number,
        "intrinsic_return": number,
        "memory": dict.fromkeys(heads, state),
    }
