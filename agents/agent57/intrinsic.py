"""The intrinsic reward of each observation, computed by the actor when the observation arrives.

The learner may compute it again, with the newest life-long novelty. Like the extrinsic reward, it
arrives with the observation, as a consequence of the previous action; the networks read both. An
episode's first intrinsic reward is 0: the memory is empty.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...datatypes import Sample
from ...networks import Agent57Networks
from . import episodic_memory, novelty
from .config import Config
from .episodic_memory import MemoryState
from .novelty import Moments
from .policies import recomputes


class IntrinsicParams(NamedTuple):
    """Parameters of the networks of the intrinsic reward.

    Attributes:
      embedding: the controllable state's.
      predictor: the trained network of random network distillation.
      random: the fixed one.
      num_updates: int32 `[]`, updates of the predictor.
    """

    embedding: Any
    predictor: Any
    random: Any
    num_updates: jax.Array


class IntrinsicState(NamedTuple):
    """State of the intrinsic reward between observations.

    Attributes:
      memory: the episode's states.
      moments: of the novelty errors that this actor computed.
      embedding: the embedding's parameters of this episode; `()` if the newest are always used.
    """

    memory: MemoryState
    moments: Moments
    embedding: Any


def begin(config: Config, networks: Agent57Networks) -> IntrinsicState:
    """The state before the first observation."""
    embedding: Any = ()
    if config.embedding_refresh == "episode":
        shapes = jax.eval_shape(networks.embedding.init, jax.random.key(0))
        embedding = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    memory = episodic_memory.init(config.episodic_capacity, config.embedding_size)
    return IntrinsicState(memory, novelty.init(), embedding)


def reward(
    config: Config,
    networks: Agent57Networks,
    params: IntrinsicParams,
    state: IntrinsicState,
    observation: jax.Array,
    is_first: jax.Array,
) -> tuple[jax.Array, jax.Array, IntrinsicState]:
    """r^i = r^episodic min(max(alpha, 1), L) of an observation (NGU, section 2.2).

    Args:
      config: constants.
      networks: embedding and novelty are used.
      params: the newest ones; with `embedding_refresh="episode"` the embedding's are copied on a
        first step and kept for the episode.
      state: of the actor.
      observation: `[...]`.
      is_first: bool `[]`, whether an episode begins.

    Returns:
      r^i and r^episodic, float32 `[]` each, and the new state.
    """
    embedding = params.embedding
    if config.embedding_refresh == "episode":
        embedding = jax.tree.map(
            lambda new, kept: jnp.where(is_first, new, kept), embedding, state.embedding
        )
        state = state._replace(embedding=embedding)
    episodic, memory = episodic_memory.bonus(
        episodic_memory.empty(state.memory, is_first),
        networks.embedding.apply(embedding, observation[None])[0],
        num_neighbours=config.num_neighbours,
        cluster_distance=config.cluster_distance,
        kernel_epsilon=config.kernel_epsilon,
        pseudo_count=config.pseudo_count,
        max_similarity=config.max_similarity,
    )
    predicted, random = (
        networks.novelty.apply(part, observation[None])[0]
        for part in (params.predictor, params.random)
    )
    error = novelty.distillation_error(predicted, random)
    alpha, moments = novelty.modulator(
        state.moments, error, config.novelty_window, params.num_updates > 0
    )
    intrinsic = novelty.intrinsic_reward(episodic, alpha, config.max_modulator)
    return intrinsic, episodic, state._replace(memory=memory, moments=moments)


def learned_rewards(
    config: Config, networks: Agent57Networks, predictor: Any, random: Any, sample: Sample
) -> jax.Array:
    """The intrinsic rewards that are learned from, `[B, T + 1]`; see `Config.intrinsic_rewards`.

    Args:
      config: constants.
      networks: novelty is used.
      predictor: the newest parameters of the predictor, which take no gradient here.
      random: those of the random network.
      sample: B sequences.
    """
    stored = sample.rows.extras
    if not recomputes(config):
        return stored["intrinsic_reward"]
    observations = sample.rows.observation
    flat = jnp.reshape(observations, (-1, *observations.shape[2:]))
    predicted, target = (networks.novelty.apply(part, flat) for part in (predictor, random))
    errors = novelty.distillation_error(predicted, target).reshape(sample.mask.shape)
    alpha = novelty.batch_modulators(errors, sample.mask)
    return novelty.intrinsic_reward(stored["episodic_reward"], alpha, config.max_modulator)
