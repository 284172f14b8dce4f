"""The meta-controller: a sliding-window upper-confidence bandit (Agent57, section 3.2).

A pull is one episode with an arm; its payoff is the episode's undiscounted extrinsic return. `N`
denotes the number of arms, `W` the window. Only the last W pulls are kept.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class BanditState(NamedTuple):
    """The pulls in the window, in a ring buffer."""

    arms: jax.Array  # int32 `[W]`, of each pull
    returns: jax.Array  # float32 `[W]`
    num_pulls: jax.Array  # int32 `[]`, so far, older ones included


def init(window: int) -> BanditState:
    """A bandit without pulls; W >= 1 (tau of the paper) is not checked."""
    return BanditState(
        jnp.zeros((window,), jnp.int32), jnp.zeros((window,), jnp.float32), jnp.zeros((), jnp.int32)
    )


def update(state: BanditState, arm: jax.Array, return_: jax.Array) -> BanditState:
    """Adds a pull with its return `[]`; replaces the oldest one if the window is full."""
    slot = state.num_pulls % state.arms.shape[0]
    return BanditState(
        state.arms.at[slot].set(arm.astype(jnp.int32)),
        state.returns.at[slot].set(return_.astype(jnp.float32)),
        state.num_pulls + 1,
    )


def statistics(state: BanditState, num_arms: int) -> tuple[jax.Array, jax.Array]:
    """Counts N_k(a, tau) and mean returns mu_k(a, tau) of the arms, `[N]`; 0 without a pull."""
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
    """The next arm, int32 `[]`: each arm once; then the largest upper confidence bound, or uniform.

    With probability 1 - epsilon the arm is argmax_a mu(a, tau) + bonus sqrt(1 / N(a, tau)), without
    a logarithm; ties are resolved to the first arm. An arm without a pull in the window has an
    infinite bound. The first pulls are of the arms `first` (0 in the paper), `first` + 1 ... modulo
    N.
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
    """The arm with the largest mean return in the window, int32 `[]`; 0 before the first pull."""
    counts, means = statistics(state, num_arms)
    return jnp.argmax(jnp.where(counts > 0, means, -jnp.inf)).astype(jnp.int32)


def best_of_all(states: BanditState) -> jax.Array:
    """The best arm over the windows of E bandits together, W >= N; 0 before the first pull."""
    window = states.arms.shape[1]
    filled = jnp.arange(window) < states.num_pulls[:, None]
    counts, totals = (
        jnp.zeros(window).at[states.arms].add(jnp.where(filled, x, 0.0))
        for x in (1.0, states.returns)
    )
    means = jnp.where(counts > 0, totals / jnp.maximum(counts, 1.0), -jnp.inf)
    return jnp.argmax(means).astype(jnp.int32)
