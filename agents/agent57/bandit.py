"""The meta-controller: a sliding-window upper-confidence bandit (Agent57, section 3.2).

A pull is one episode with an arm; its payoff is the episode's undiscounted extrinsic return. `N`
denotes the number of arms, `W` the window. Only the last W pulls are kept.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class BanditState(NamedTuple):
    """The pulls in the window, in a ring buffer.

    Attributes:
      arms: int32 `[W]`, the arm of each pull.
      returns: float32 `[W]`, its return.
      num_pulls: int32 `[]`, number of pulls so far, older ones included.
    """

    arms: jax.Array
    returns: jax.Array
    num_pulls: jax.Array


def init(window: int) -> BanditState:
    """A bandit without pulls; W >= 1 (tau of the paper) is not checked."""
    return BanditState(
        jnp.zeros((window,), jnp.int32), jnp.zeros((window,), jnp.float32), jnp.zeros((), jnp.int32)
    )


def update(state: BanditState, arm: jax.Array, return_: jax.Array) -> BanditState:
    """Adds a pull; replaces the oldest one if the window is full.

    Args:
      state: before the pull.
      arm: `[]`, in 0 .. N - 1.
      return_: `[]`, the episode's undiscounted extrinsic return.
    """
    slot = state.num_pulls % state.arms.shape[0]
    return BanditState(
        state.arms.at[slot].set(arm.astype(jnp.int32)),
        state.returns.at[slot].set(return_.astype(jnp.float32)),
        state.num_pulls + 1,
    )


def statistics(state: BanditState, num_arms: int) -> tuple[jax.Array, jax.Array]:
    """Number of pulls and mean return of each of N arms within the window.

    Returns:
      Counts N_k(a, tau), float32 `[N]`, and means mu_k(a, tau), `[N]`, 0 where the count is 0.
    """
    filled = jnp.arange(state.arms.shape[0]) < state.num_pulls
    pulled = (state.arms[:, None] == jnp.arange(num_arms)) & filled[:, None]
    counts = jnp.sum(pulled, axis=0, dtype=jnp.float32)
    totals = jnp.sum(jnp.where(pulled, state.returns[:, None], 0.0), axis=0)
    return counts, totals / jnp.maximum(counts, 1.0)


def choose(
    key: jax.Array,
    state: BanditState,
    *,
    num_arms: int,
    bonus: float,
    epsilon: float,
    first: jax.Array | int = 0,
) -> jax.Array:
    """The next arm: each arm once; then the largest upper confidence bound, or a uniform draw.

    With probability 1 - epsilon the arm is argmax_a mu(a, tau) + bonus sqrt(1 / N(a, tau)), without
    a logarithm; ties are resolved to the first arm. An arm without a pull in the window has an
    infinite bound.

    Args:
      key: PRNG key.
      state: the pulls so far.
      num_arms: N.
      bonus: beta_UCB >= 0.
      epsilon: epsilon_UCB in [0, 1].
      first: int32 `[]`, >= 0: modulo N, the arm of the first pull; the others follow in turn. 0 in
        the paper.

    Returns:
      An arm, int32 `[]`.
    """
    coin_key, arm_key = jax.random.split(key)
    counts, means = statistics(state, num_arms)
    untried = counts == 0
    bound = jnp.where(untried, jnp.inf, means + bonus / jnp.sqrt(jnp.maximum(counts, 1.0)))
    uniform = jax.random.randint(arm_key, (), 0, num_arms, jnp.int32)
    best = jnp.argmax(bound).astype(jnp.int32)
    later = jnp.where(jax.random.uniform(coin_key) < epsilon, uniform, best)
    in_turn = (first + state.num_pulls) % num_arms
    return jnp.where(state.num_pulls < num_arms, in_turn, later).astype(jnp.int32)


def best(state: BanditState, num_arms: int) -> jax.Array:
    """The arm with the largest mean return within the window, int32 `[]`.

    0, which has no intrinsic reward, before the first pull.
    """
    counts, means = statistics(state, num_arms)
    return jnp.argmax(jnp.where(counts > 0, means, -jnp.inf)).astype(jnp.int32)


def best_of_all(states: BanditState) -> jax.Array:
    """The arm with the largest mean return over the windows of several bandits together.

    Args:
      states: `[E, ...]`, E bandits with windows of W >= N pulls.

    Returns:
      int32 `[]`; 0 before the first pull.
    """
    window = states.arms.shape[1]
    filled = jnp.arange(window) < states.num_pulls[:, None]
    counts, totals = (
        jnp.zeros(window).at[states.arms].add(jnp.where(filled, x, 0.0))
        for x in (1.0, states.returns)
    )
    means = jnp.where(counts > 0, totals / jnp.maximum(counts, 1.0), -jnp.inf)
    return jnp.argmax(means).astype(jnp.int32)
