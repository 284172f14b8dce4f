"""Agent57's actors and evaluators (appendix E): arms, intrinsic rewards, epsilon-greedy actions.

`A` denotes the number of actions.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
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
from .policies import HEADS, combine, is_curious, make_arms


class ActingParams(NamedTuple):
    """What actors fetch.

    Attributes:
      values: parameters of the value networks, by the names of `HEADS`.
      intrinsic: `IntrinsicParams`, or None without intrinsic rewards.
    """

    values: dict[str, Any]
    intrinsic: Any


class ActorState(NamedTuple):
    """State of an actor or of an evaluator between time steps.

    Attributes:
      key: PRNG key.
      number: int32 `[]`, the actor's.
      epsilon: float32 `[]`, epsilon_l.
      arm: int32 `[]`, of this episode.
      bandit: the actor's meta-controller: the episodes of `explore`.
      evaluator_bandit: the evaluator's: the episodes of `exploit`, and those of `warm_start`.
      evaluator_episodes: int32 `[]`, episodes that `exploit` has finished.
      previous_action: int32 `[]`.
      memory: recurrent states of the value networks before the next observation.
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
    evaluator_bandit: BanditState
    evaluator_episodes: jax.Array
    previous_action: jax.Array
    memory: dict[str, Any]
    intrinsic: Any
    intrinsic_reward: jax.Array
    extrinsic_return: jax.Array
    intrinsic_return: jax.Array


def begin(
    key: jax.Array,
    actor_id: jax.Array,
    num_actors: int,
    *,
    config: Config,
    networks: Agent57Networks,
) -> ActorState:
    """The state before the first time step: empty bandits, empty memories."""
    return ActorState(
        key=key,
        number=jnp.asarray(actor_id, jnp.int32),
        epsilon=epsilon_of_actor(
            actor_id, num_actors, config.actor_epsilon, config.actor_epsilon_exponent
        ),
        arm=jnp.zeros((), jnp.int32),
        bandit=bandit.init(config.bandit_window),
        evaluator_bandit=bandit.init(config.evaluator_window),
        evaluator_episodes=jnp.zeros((), jnp.int32),
        previous_action=jnp.zeros((), jnp.int32),
        memory={name: networks.value.initial_state() for name in HEADS[config.values]},
        intrinsic=intrinsic.begin(config, networks) if is_curious(config) else None,
        intrinsic_reward=jnp.zeros((), jnp.float32),
        extrinsic_return=jnp.zeros((), jnp.float32),
        intrinsic_return=jnp.zeros((), jnp.float32),
    )


def extras_spec(config: Config, networks: Agent57Networks) -> dict[str, Any]:
    """`SequenceSpec.extras`: what actors store with each row (appendix E's transition)."""
    number = jax.ShapeDtypeStruct((), jnp.float32)
    index = jax.ShapeDtypeStruct((), jnp.int32)
    state = jax.eval_shape(networks.value.initial_state)
    return {
        "arm": index,
        "previous_action": index,
        "intrinsic_reward": number,
        "mu": number,
        "epsilon": number,
        "intrinsic_return": number,
        "memory": dict.fromkeys(HEADS[config.values], state),
    }


def explore(
    params: ActingParams,
    state: ActorState,
    timestep: TimeStep,
    *,
    config: Config,
    networks: Agent57Networks,
    num_actions: int,
) -> Decision:
    """One time step of an actor: the arm of its own bandit, epsilon_l-greedy actions."""
    act = functools.partial(_act, config=config, networks=networks, num_actions=num_actions)
    key, arm_key, *keys = jax.random.split(state.key, 4)
    arm = _actors_arm(arm_key, state, config)
    decision = act(keys, params, state._replace(key=key), timestep, arm, state.epsilon)
    state = decision.state
    pulls = _with_episode(state.bandit, state, timestep)
    return decision._replace(state=state._replace(bandit=pulls))


def exploit(
    params: ActingParams,
    state: ActorState,
    timestep: TimeStep,
    *,
    config: Config,
    networks: Agent57Networks,
    num_actions: int,
) -> Decision:
    """One time step of an evaluator: the arm of its own bandit, a small epsilon."""
    act = functools.partial(_act, config=config, networks=networks, num_actions=num_actions)
    key, arm_key, *keys = jax.random.split(state.key, 4)
    arm, is_greedy = _evaluators_arm(arm_key, state, config)
    epsilon = jnp.float32(config.evaluation_epsilon)
    decision = act(keys, params, state._replace(key=key), timestep, arm, epsilon)
    state = decision.state
    state = state._replace(
        evaluator_bandit=_with_episode(state.evaluator_bandit, state, timestep),
        evaluator_episodes=state.evaluator_episodes + (timestep.step_type == StepType.LAST),
    )
    extras = {**decision.extras, "greedy_arm": is_greedy, "sampled_arm": ~is_greedy}
    return decision._replace(extras=extras, state=state)


def warm_start(evaluator: ActorState, actors: ActorState) -> ActorState:
    """`AgentEntry.warm_start`: a new evaluator's bandit starts with the actors' newest pulls.

    Its greedy arm is the best one by these pulls. The alternation between greedy and sampled
    episodes restarts.

    Args:
      evaluator: a state of `begin`.
      actors: `[E, ...]`, the states of all actors.
    """
    window = evaluator.evaluator_bandit.arms.shape[0]
    return evaluator._replace(evaluator_bandit=bandit.pool(actors.bandit, window))


def _actors_arm(key: jax.Array, state: ActorState, config: Config) -> jax.Array:
    if config.arm_choice == "bandit":
        return _choose(key, state.bandit, config.bandit_epsilon, config)
    if config.arm_choice == "uniform":
        return jax.random.randint(key, (), 0, config.num_arms, jnp.int32)
    return state.number % config.num_arms if config.arm_choice == "actor" else jnp.int32(0)


def _evaluators_arm(
    key: jax.Array, state: ActorState, config: Config
) -> tuple[jax.Array, jax.Array]:
    """The arm of an episode, and whether it is the greedy one."""
    if config.evaluation == "arm_0":
        return jnp.int32(0), jnp.array(True)
    greedy = bandit.best(state.evaluator_bandit, config.num_arms)
    if config.evaluation == "greedy":
        return greedy, jnp.array(True)
    is_greedy = state.evaluator_episodes % 2 == 1
    sampled = _choose(key, state.evaluator_bandit, config.evaluator_epsilon, config)
    return jnp.where(is_greedy, greedy, sampled), is_greedy


def _choose(key: jax.Array, pulls: BanditState, epsilon: float, config: Config) -> jax.Array:
    return bandit.choose(
        key, pulls, num_arms=config.num_arms, bonus=config.bandit_bonus, epsilon=epsilon
    )


def _with_episode(pulls: BanditState, state: ActorState, timestep: TimeStep) -> BanditState:
    """A bandit, with this episode's pull if the episode ends."""
    is_last = timestep.step_type == StepType.LAST
    new = bandit.update(pulls, state.arm, state.extrinsic_return)
    return jax.tree.map(lambda x, y: jnp.where(is_last, x, y), new, pulls)


def _act(
    keys: Sequence[jax.Array],
    params: ActingParams,
    state: ActorState,
    timestep: TimeStep,
    arm: jax.Array,
    epsilon: jax.Array,
    *,
    config: Config,
    networks: Agent57Networks,
    num_actions: int,
) -> Decision:
    """Receives a time step and chooses an action; on a first step `arm` becomes the episode's.

    Args:
      keys: two PRNG keys, of the "previous" action of a first step, and of the action.
      params: from the learner.
      state: of the actor.
      timestep: unbatched.
      arm: int32 `[]`.
      epsilon: float32 `[]`.
      config: hyper-parameters.
      networks: the agent's.
      num_actions: A.
    """
    drawn = jax.random.randint(keys[0], (), 0, num_actions, jnp.int32)
    state = _receive(params, state, timestep, arm, drawn, config=config, networks=networks)
    values, memory = _read(params, state, timestep, config=config, networks=networks)
    chex.assert_shape(values, (num_actions,))  # of one's own networks
    action, mu = epsilon_greedy(keys[1], values, epsilon)
    extras = {
        "arm": state.arm,
        "previous_action": state.previous_action,
        "intrinsic_reward": state.intrinsic_reward,
        "mu": mu,
        "epsilon": epsilon,
        "intrinsic_return": state.intrinsic_return,
        "memory": state.memory,
    }
    return Decision(action, extras, state._replace(previous_action=action, memory=memory))


def _receive(
    params: ActingParams,
    state: ActorState,
    timestep: TimeStep,
    arm: jax.Array,
    previous_action: jax.Array,
    *,
    config: Config,
    networks: Agent57Networks,
) -> ActorState:
    """The state with the rewards of a time step; with arm and previous action on a first step."""
    is_first = timestep.step_type == StepType.FIRST
    if is_curious(config):
        reward, kept = intrinsic.reward(
            config, networks, params.intrinsic, state.intrinsic, timestep.observation, is_first
        )
        state = state._replace(intrinsic_reward=reward, intrinsic=kept)

    def add(total: jax.Array, reward: jax.Array) -> jax.Array:
        return jnp.where(is_first, 0.0, total + reward)

    return state._replace(
        arm=jnp.where(is_first, arm, state.arm),
        previous_action=jnp.where(is_first, previous_action, state.previous_action),
        extrinsic_return=add(state.extrinsic_return, timestep.reward),
        intrinsic_return=add(state.intrinsic_return, state.intrinsic_reward),
    )


def _read(
    params: ActingParams,
    state: ActorState,
    timestep: TimeStep,
    *,
    config: Config,
    networks: Agent57Networks,
) -> tuple[jax.Array, dict[str, Any]]:
    """The mixed values `[A]`, and the recurrent states before the next observation."""
    inputs = R2D2Inputs(
        observation=timestep.observation,
        previous_action=state.previous_action,
        reward=timestep.reward,
        intrinsic_reward=state.intrinsic_reward,
        arm=state.arm,
    )
    is_first = timestep.step_type == StepType.FIRST
    values, memory = {}, {}
    for name in HEADS[config.values]:
        values[name], memory[name] = networks.value.step(
            params.values[name], inputs, is_first, state.memory[name]
        )
    return combine(config, values, jnp.asarray(make_arms(config).weights)[state.arm]), memory
