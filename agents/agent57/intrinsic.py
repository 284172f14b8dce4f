"""The intrinsic reward of each observation, as an actor computes it when the observation arrives.

It arrives with the observation, as the extrinsic reward does: both are the consequence of the
action before, and the networks read both. An episode's first reward is 0: nothing is in memory.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...networks import Agent57Networks
from . import episodic_memory, novelty
from .config import Config
from .episodic_memory import MemoryState
from .novelty import Moments


class IntrinsicParams(NamedTuple):
    """Parameters of the networks behind the intrinsic reward.

    Attributes:
      embedding: the controllable state's.
      predictor: that of random network distillation which learns.
      random: the one which does not.
    """

    embedding: Any
    predictor: Any
    random: Any


class IntrinsicState(NamedTuple):
    """What an actor keeps between observations.

    Attributes:
      memory: the episode's states.
      moments: of the novelty errors, over the actor's life (ours: the paper does not say).
      embedding: the embedding's parameters of this episode, or `()` where always the newest count.
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
) -> tuple[jax.Array, IntrinsicState]:
    """r^i = r^episodic min(max(alpha, 1), L) of an observation (NGU, section 2.2).

    Args:
      config: constants.
      networks: embedding and novelty are used.
      params: their newest parameters; a copy of the embedding's is used for a whole episode.
      state: before.
      observation: `[...]`.
      is_first: bool `[]`, whether an episode begins.

    Returns:
      The reward, float32 `[]`, and the new state.
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
    alpha, moments = novelty.modulator(state.moments, error)
    intrinsic = novelty.intrinsic_reward(episodic, alpha, config.max_modulator)
    return intrinsic, state._replace(memory=memory, moments=moments)
