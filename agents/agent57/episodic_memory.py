"""Novelty of a state within its episode: NGU's episodic bonus (section 2.2 and algorithm 1).

`C` denotes the memory's capacity, `D` the size of an embedding ("controllable state"), k the number
of neighbours. A state is compared with the earlier ones of the episode, and then stored.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

_BLOCK = 512  # slots read at a time; 1,024 and 2,048 are no faster on a CPU


class MemoryState(NamedTuple):
    """The embeddings of an episode, and the scale of their distances.

    The ring has one entry more than the capacity: a new entry is written before its neighbours are
    looked up, so that a donated buffer is updated in place (if it were read first, the whole buffer
    would be copied). Distances are kept between episodes (unspecified in the paper; our choice).
    """

    entries: jax.Array  # float32 `[C + 1, D]`
    size: jax.Array  # int32 `[]`, entries ever stored in this episode
    mean_distance: jax.Array  # float32 `[]`, running mean of the squared ones to neighbours
    num_means: jax.Array  # int32 `[]`, look-ups in the mean


def init(capacity: int, embedding_size: int) -> MemoryState:
    """An empty memory of C >= 1 embeddings of D >= 1 numbers."""
    # Separate arrays of zeros: a buffer cannot be donated twice.
    return MemoryState(
        entries=jnp.zeros((capacity + 1, embedding_size), jnp.float32),
        size=jnp.zeros((), jnp.int32),
        mean_distance=jnp.zeros((), jnp.float32),
        num_means=jnp.zeros((), jnp.int32),
    )


def empty(state: MemoryState, where: jax.Array) -> MemoryState:
    """Empties the memory where an episode begins, bool `[]`. Entries are not overwritten."""
    return state._replace(size=jnp.where(where, 0, state.size))


def nearest_distances(state: MemoryState, embedding: jax.Array, k: int) -> jax.Array:
    """Squared Euclidean distances `[k]` to the nearest entries without the newest, the query.

    Increasing; infinite where there are fewer entries. Computed from differences:
    |x|^2 - 2 x y + |y|^2 loses precision for near entries, and is no faster. Only slots that are
    filled are read, in blocks: a short episode in a large memory costs what it does in a small one.
    """
    slots = state.entries.shape[0]
    block = min(_BLOCK, slots)
    newest = (state.size - 1) % slots

    def search(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        start, nearest = carry
        first = jnp.minimum(start, slots - block)  # the last block may overlap the one before
        index = first + jnp.arange(block)
        entries = jax.lax.dynamic_slice_in_dim(state.entries, first, block)
        distances = jnp.sum(jnp.square(entries - embedding), axis=-1)
        kept = (index >= start) & (index < state.size) & (index != newest)
        candidates = jnp.concatenate([nearest, jnp.where(kept, distances, jnp.inf)])
        return start + block, -jax.lax.top_k(-candidates, k)[0]

    def is_filled(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        return carry[0] < jnp.minimum(state.size, slots)

    none = (jnp.zeros_like(state.size), jnp.full(k, jnp.inf, state.entries.dtype))
    return jax.lax.while_loop(is_filled, search, none)[1]


def bonus(
    state: MemoryState,
    embedding: jax.Array,
    *,
    num_neighbours: int,
    cluster_distance: float,
    kernel_epsilon: float,
    pseudo_count: float,
    max_similarity: float,
) -> tuple[jax.Array, MemoryState]:
    """The episodic reward `[]` of a state, and the memory that includes it (NGU, algorithm 1).

    d_k are the squared distances to the k nearest and d_m their running mean, these included:
    d_n = max(d_k / d_m - xi, 0), K = eps / (d_n + eps), s = sqrt(sum K) + c. The reward is 1 / s,
    or 0 where s > s_m. With fewer than k entries it is 0 and the mean is unchanged (unspecified in
    the paper; our choice).

    `num_neighbours` is k, in 1 .. C; `cluster_distance` xi; `kernel_epsilon` eps > 0;
    `pseudo_count` c > 0; `max_similarity` s_m > 0.
    """
    enough = state.size >= num_neighbours
    slot = state.size % state.entries.shape[0]
    state = state._replace(
        entries=state.entries.at[slot].set(embedding.astype(jnp.float32)), size=state.size + 1
    )
    nearest = nearest_distances(state, embedding, num_neighbours)
    nearest = jnp.where(enough, nearest, 0.0)
    num_means = state.num_means + enough
    step = (jnp.mean(nearest) - state.mean_distance) / jnp.maximum(num_means, 1)
    mean_distance = state.mean_distance + jnp.where(enough, step, 0.0)
    # The mean is 0 only if all distances were 0.
    scaled = nearest / jnp.where(mean_distance > 0, mean_distance, 1.0)
    kernel = kernel_epsilon / (jnp.maximum(scaled - cluster_distance, 0.0) + kernel_epsilon)
    similarity = jnp.sqrt(jnp.sum(kernel)) + pseudo_count
    reward = jnp.where(enough & (similarity <= max_similarity), 1.0 / similarity, 0.0)
    return reward, state._replace(mean_distance=mean_distance, num_means=num_means)
