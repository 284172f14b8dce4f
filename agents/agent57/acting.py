"""Agent57's actors and evaluators: one time step a call, last ones too."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from dm_env import StepType

from ...datatypes import TimeStep
from ...networks import Agent57Networks, R2D2Inputs
from ..base import Decision
from ..exploration import epsilon_greedy, epsilon_of_actor
from . import bandit, intrinsic
from .bandit import BanditState
from .config import Config
from .policies import HEADS, combine, make_arms


class ActingParams(NamedTuple):
    """What actors fetch.

    Attributes:
      values: parameters of the value networks, by the names of `HEADS`.
      intrinsic: `IntrinsicParams`, or None without intrinsic rewards.
      bandit: what the arms paid in the sampled sequences: a new evaluator knows it so.
    """

    values: dict[str, Any]
    intrinsic: Any
    bandit: BanditState


class ActorState(NamedTuple):
    """What an actor keeps between time steps.

    Attributes:
      key: PRNG key.
      number: int32 `[]`, the actor's.
      epsilon: float32 `[]`, epsilon_l.
      arm: int32 `[]`, of this episode.
      bandit: the actor's meta-controller.
      evaluator: the evaluator's.
      previous_action: int32 `[]`.
      memory: the networks' recurrent states before the next observation.
      intrinsic: `IntrinsicState`, or None without intrinsic rewards.
      intrinsic_reward: float32 `[]`, that of the newest observation.
      extrinsic_return: float32 `[]`, undiscounted, of the episode so far.
      intrinsic_return: float32 `[]`, likewise.
    """

    key: jax.Array
    number: jax.Array
    epsilon: jax.Array
    arm: jax.Array
    bandit: BanditState
    evaluator: BanditState
    previous_action: jax.Array
    memory: dict[str, Any]
    intrinsic: Any
    intrinsic_reward: jax.Array
    extrinsic_return: jax.Array
    intrinsic_return: jax.Array


class Acting(NamedTuple):
    """`begin`, `explore` and `exploit` of `Agent`."""

    begin: Callable[..., ActorState]
    explore: Callable[..., Decision]
    exploit: Callable[..., Decision]


def make_acting(config: Config, networks: Agent57Networks, num_actions: int) -> Acting:
    """An agent's acting functions.

    Args:
      config: hyper-parameters.
      networks: the agent's.
      num_actions: A.
    """
    weights, heads = make_arms(config).weights, HEADS[config.values]
    is_curious = config.values != "extrinsic"

    def begin(key: jax.Array, actor_id: jax.Array, num_actors: int) -> ActorState:
        return ActorState(
            key=key,
            number=jnp.asarray(actor_id, jnp.int32),
            epsilon=epsilon_of_actor(
                actor_id, num_actors, config.actor_epsilon, config.actor_epsilon_exponent
            ),
            arm=jnp.zeros((), jnp.int32),
            bandit=bandit.init(config.bandit_window),
            evaluator=bandit.init(config.evaluator_window),
            previous_action=jnp.zeros((), jnp.int32),
            memory={name: networks.value.initial_state() for name in heads},
            intrinsic=intrinsic.begin(config, networks) if is_curious else None,
            intrinsic_reward=jnp.zeros((), jnp.float32),
            extrinsic_return=jnp.zeros((), jnp.float32),
            intrinsic_return=jnp.zeros((), jnp.float32),
        )

    def pull(key: jax.Array, state: BanditState, epsilon: float) -> jax.Array:
        arms, bonus = config.num_arms, config.bandit_bonus
        return bandit.choose(key, state, num_arms=arms, bonus=bonus, epsilon=epsilon)

    def actors_arm(key: jax.Array, state: ActorState) -> jax.Array:
        if config.arm_choice == "bandit":
            return pull(key, state.bandit, config.bandit_epsilon)
        if config.arm_choice == "uniform":
            return jax.random.randint(key, (), 0, config.num_arms, jnp.int32)
        return state.number % config.num_arms if config.arm_choice == "actor" else jnp.int32(0)

    def evaluators_arm(
        key: jax.Array, state: ActorState, known: BanditState
    ) -> tuple[jax.Array, jax.Array]:
        """The arm of an episode, and whether it is the greedy one."""
        if config.evaluation == "arm_0":
            return jnp.int32(0), jnp.array(True)
        greedy = bandit.best(state.evaluator, config.num_arms, known)
        if config.evaluation == "greedy":
            return greedy, jnp.array(True)
        is_greedy = state.evaluator.num_pulls % 2 == 1
        sampled = pull(key, state.evaluator, config.evaluator_epsilon)
        return jnp.where(is_greedy, greedy, sampled), is_greedy

    def arrive(
        key: jax.Array, params: ActingParams, state: ActorState, timestep: TimeStep, arm: jax.Array
    ) -> ActorState:
        """Takes in a time step: rewards, and a new episode's arm and random "previous" action."""
        is_first = timestep.step_type == StepType.FIRST
        if is_curious:
            reward, kept = intrinsic.reward(
                config, networks, params.intrinsic, state.intrinsic, timestep.observation, is_first
            )
            state = state._replace(intrinsic_reward=reward, intrinsic=kept)

        def onward(total: jax.Array, reward: jax.Array) -> jax.Array:
            return jnp.where(is_first, 0.0, total + reward)

        drawn = jax.random.randint(key, (), 0, num_actions, jnp.int32)
        return state._replace(
            arm=jnp.where(is_first, arm, state.arm),
            previous_action=jnp.where(is_first, drawn, state.previous_action),
            extrinsic_return=onward(state.extrinsic_return, timestep.reward),
            intrinsic_return=onward(state.intrinsic_return, state.intrinsic_reward),
        )

    def read(
        params: ActingParams, state: ActorState, timestep: TimeStep
    ) -> tuple[jax.Array, dict[str, Any]]:
        """The mixed values `[A]`, and the recurrent states behind."""
        inputs = R2D2Inputs(
            observation=timestep.observation,
            previous_action=state.previous_action,
            reward=timestep.reward,
            intrinsic_reward=state.intrinsic_reward,
            arm=state.arm,
        )
        is_first = timestep.step_type == StepType.FIRST
        read = {
            name: networks.value.step(params.values[name], inputs, is_first, state.memory[name])
            for name in heads
        }
        values = {name: value for name, (value, _) in read.items()}
        memory = {name: behind for name, (_, behind) in read.items()}
        return combine(config, values, jnp.asarray(weights)[state.arm]), memory

    def decide(
        key: jax.Array,
        params: ActingParams,
        state: ActorState,
        timestep: TimeStep,
        epsilon: jax.Array,
    ) -> Decision:
        values, memory = read(params, state, timestep)
        action, mu = epsilon_greedy(key, values, epsilon)
        extras = {
            "arm": state.arm,
            "previous_action": state.previous_action,
            "intrinsic_reward": state.intrinsic_reward,
            "mu": mu,
            "epsilon": epsilon,
            "extrinsic_return": state.extrinsic_return,
            "intrinsic_return": state.intrinsic_return,
            "memory": state.memory,
        }
        return Decision(action, extras, state._replace(previous_action=action, memory=memory))

    def paid(book: BanditState, state: ActorState, timestep: TimeStep) -> BanditState:
        """A bandit with the episode that has ended, if one has."""
        is_last = timestep.step_type == StepType.LAST
        new = bandit.update(book, state.arm, state.extrinsic_return)
        return jax.tree.map(lambda x, y: jnp.where(is_last, x, y), new, book)

    def explore(params: ActingParams, state: ActorState, timestep: TimeStep) -> Decision:
        key, *keys = jax.random.split(state.key, 4)
        arm = actors_arm(keys[0], state)
        state = arrive(keys[1], params, state._replace(key=key), timestep, arm)
        state = state._replace(bandit=paid(state.bandit, state, timestep))
        return decide(keys[2], params, state, timestep, state.epsilon)

    def exploit(params: ActingParams, state: ActorState, timestep: TimeStep) -> Decision:
        key, *keys = jax.random.split(state.key, 4)
        arm, is_greedy = evaluators_arm(keys[0], state, params.bandit)
        state = arrive(keys[1], params, state._replace(key=key), timestep, arm)
        state = state._replace(evaluator=paid(state.evaluator, state, timestep))
        decision = decide(keys[2], params, state, timestep, jnp.float32(config.evaluation_epsilon))
        modes = {"greedy_arm": is_greedy, "sampled_arm": ~is_greedy}
        return decision._replace(extras={**decision.extras, **modes})

    return Acting(begin, explore, exploit)
