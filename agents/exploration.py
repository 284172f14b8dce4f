"""Exploration: drawn and epsilon-greedy actions, their probabilities, epsilon of each actor.

Unbatched over environments. `A` denotes the number of actions, of which those with a value of -inf
are illegal, `L` the number of actors, l one of them.
"""

import jax
import jax.numpy as jnp
from jax import Array


def draw_action(key: Array, pi: Array) -> Array:
    """Draws an action, int32 `[]`, with probabilities `[A]`: never one whose probability is 0."""
    log_pi = jnp.log(jnp.maximum(pi, jnp.finfo(pi.dtype).tiny))
    return jax.random.categorical(key, jnp.where(pi > 0, log_pi, -jnp.inf)).astype(jnp.int32)


def epsilon_greedy(key: Array, values: Array, epsilon: Array) -> tuple[Array, Array]:
    """Draws an action: greedy with probability 1 - epsilon, otherwise uniform over legal actions.

    mu depends on the action alone, not on the draw that chose it: 1 - epsilon (A - 1) / A for the
    greedy one of A legal actions, epsilon / A for any other. Off-policy corrections need this mu.

    Returns:
      The action, int32 `[]`, and mu, its probability, `[]`, of values `[A]`.
    """
    coin_key, action_key = jax.random.split(key)
    greedy = jnp.argmax(values).astype(jnp.int32)
    legal = jnp.cumsum(~jnp.isneginf(values))
    index = jax.random.randint(action_key, (), 0, legal[-1], jnp.int32)
    uniform = jnp.argmax(legal > index).astype(jnp.int32)
    action = jnp.where(jax.random.uniform(coin_key) < epsilon, uniform, greedy)
    return action, epsilon_greedy_probabilities(values, epsilon)[action]


def epsilon_greedy_probabilities(values: Array, epsilon: Array | float) -> Array:
    """The distribution `[..., A]` of `epsilon_greedy`; the first of equal values is greedy."""
    legal = ~jnp.isneginf(values)
    greedy = jax.nn.one_hot(jnp.argmax(values, axis=-1), values.shape[-1])
    return (1.0 - epsilon) * greedy + epsilon * legal / jnp.sum(legal, axis=-1, keepdims=True)


def epsilon_of_actor(actor_id: Array, num_actors: int, base: float, exponent: float) -> Array:
    """epsilon_l = base^(1 + exponent l / (L - 1)), constant over time, different for each actor.

    Ape-X (Horgan et al. 2018), section 4.1; also in R2D2 and Agent57. A single actor gets the
    exponent in the middle of the range, 1 + exponent / 2 (our choice: the formula divides by 0).
    """
    share = 0.5 if num_actors == 1 else actor_id / (num_actors - 1)
    return jnp.asarray(base ** (1.0 + exponent * share), jnp.float32)
