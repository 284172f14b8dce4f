"""Which arm an episode follows: the choice of actors and of evaluators (Agent57, appendix E)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from . import bandit
from .bandit import BanditState
from .config import Config

EPISODES_OF_A_MODE = 5  # in a row (Agent57, appendix E: each mode's return is a mean of five)
_UNKNOWN = -1


class EvaluatorState(NamedTuple):
    """State of an evaluator's choice.

    Attributes:
      sampled: the pulls of the sampled mode. Greedy episodes are not among them.
      greedy_arm: int32 `[]`, the best arm by the actors' pulls; -1 if none are known.
      episodes: int32 `[]`, episodes that have ended, of both modes.
    """

    sampled: BanditState
    greedy_arm: jax.Array
    episodes: jax.Array


def begin_evaluator(window: int) -> EvaluatorState:
    """An evaluator without pulls."""
    return EvaluatorState(
        bandit.init(window), jnp.full((), _UNKNOWN, jnp.int32), jnp.zeros((), jnp.int32)
    )


def of_actor(key: jax.Array, pulls: BanditState, number: jax.Array, config: Config) -> jax.Array:
    """The arm of an actor's next episode, int32 `[]`.

    Args:
      key: PRNG key.
      pulls: of this actor's meta-controller.
      number: int32 `[]`, the actor's.
      config: hyper-parameters.
    """
    if config.arm_choice == "bandit":
        return bandit.choose(
            key,
            pulls,
            num_arms=config.num_arms,
            bonus=config.bandit_bonus,
            epsilon=config.bandit_epsilon,
        )
    if config.arm_choice == "uniform":
        return jax.random.randint(key, (), 0, config.num_arms, jnp.int32)
    return number % config.num_arms if config.arm_choice == "actor" else jnp.int32(0)


def of_evaluator(
    key: jax.Array, state: EvaluatorState, number: jax.Array, config: Config
) -> tuple[jax.Array, jax.Array]:
    """The arm of an evaluator's next episode, and whether the episode is of the greedy mode.

    Modes alternate every five episodes; evaluators with an even number begin with the greedy one.
    The greedy arm is the best one by the actors' pulls, or, if none are known, by the evaluator's
    own sampled pulls. The sampled arm is the bandit's by the sampled pulls alone; it tries each arm
    once first, from arm `number` on, so that parallel evaluators try different arms.

    Args:
      key: PRNG key.
      state: of this evaluator.
      number: int32 `[]`, the evaluator's.
      config: hyper-parameters.

    Returns:
      An arm, int32 `[]`, and bool `[]`.
    """
    if config.evaluation == "arm":
        return jnp.int32(config.evaluation_arm), jnp.array(True)
    own = bandit.best(state.sampled, config.num_arms)
    greedy = jnp.where(state.greedy_arm == _UNKNOWN, own, state.greedy_arm)
    if config.evaluation == "greedy":
        return greedy, jnp.array(True)
    is_greedy = (number + state.episodes // EPISODES_OF_A_MODE) % 2 == 0
    sampled = bandit.choose(
        key,
        state.sampled,
        num_arms=config.num_arms,
        bonus=config.bandit_bonus,
        epsilon=config.evaluator_epsilon,
        first=number,
    )
    return jnp.where(is_greedy, greedy, sampled), is_greedy


def evaluated(
    state: EvaluatorState, arm: jax.Array, return_: jax.Array, is_sampled: jax.Array
) -> EvaluatorState:
    """The state after an episode.

    Args:
      state: before it.
      arm: int32 `[]`, that it followed.
      return_: float32 `[]`, undiscounted extrinsic.
      is_sampled: bool `[]`, whether its arm was drawn by the bandit.
    """
    pulled = bandit.update(state.sampled, arm, return_)
    return state._replace(
        sampled=jax.tree.map(lambda x, y: jnp.where(is_sampled, x, y), pulled, state.sampled),
        episodes=state.episodes + 1,
    )
