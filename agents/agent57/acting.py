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
from . import arms, bandit, intrinsic
from .arms import EvaluatorState
from .bandit import BanditState
from .config import Config
from .policies import HEADS, combine, is_curious, make_arms, recomputes


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
      evaluator: of an evaluator: the episodes of `exploit`, and the arm of `warm_start`.
      previous_action: int32 `[]`.
      memory: recurrent states of the value networks before the next observation.
      intrinsic: `IntrinsicState`, or None without intrinsic rewards.
      intrinsic_reward: float32 `[]`, that of the newest observation.
      extrinsic_return: float32 `[]`, undiscounted, of the episode so far.
      intrinsic_return: float32 `[]`, undiscounted, of the episode so far.
    """

    key: jax.Array
    number: jax.Array
    epsilon: jax.Array
    arm: jax.Array
    bandit: BanditState
    evaluator: EvaluatorState
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
        evaluator=arms.begin_evaluator(config.evaluator_window),
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
        **({"episodic_reward": number} if recomputes(config) else {}),
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
    arm = arms.of_actor(arm_key, state.bandit, state.number, config)
    decision = act(keys, params, state._replace(key=key), timestep, arm, state.epsilon)
    state = decision.state
    pulls = bandit.update(state.bandit, state.arm, state.extrinsic_return)
    pulls = _where_last(timestep, pulls, state.bandit)
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
    arm, is_greedy = arms.of_evaluator(arm_key, state.evaluator, state.number, config)
    epsilon = jnp.float32(config.evaluation_epsilon)
    decision = act(keys, params, state._replace(key=key), timestep, arm, epsilon)
    state = decision.state
    after = arms.evaluated(state.evaluator, state.arm, state.extrinsic_return, ~is_greedy)
    state = state._replace(evaluator=_where_last(timestep, after, state.evaluator))
    extras = {**decision.extras, "greedy_arm": is_greedy, "sampled_arm": ~is_greedy}
    return decision._replace(extras=extras, state=state)


def warm_start(evaluator: ActorState, actors: ActorState) -> ActorState:
    """`AgentEntry.warm_start`: the best arm by all actors' pulls, and an actor's novelty moments.

    The greedy arm stays so: neither mode's episodes change it. The networks read intrinsic rewards,
    so those of an evaluation must have the scale that they had in training: evaluator e starts
    with the moments of the actor e modulo E.

    Args:
      evaluator: a state of `begin`.
      actors: `[E, ...]`, the states of all actors.
    """
    greedy = bandit.best_of_all(actors.bandit)
    evaluator = evaluator._replace(evaluator=evaluator.evaluator._replace(greedy_arm=greedy))
    if actors.intrinsic is None:
        return evaluator
    actor = evaluator.number % actors.number.shape[0]
    moments = jax.tree.map(lambda x: x[actor], actors.intrinsic.moments)
    return evaluator._replace(intrinsic=evaluator.intrinsic._replace(moments=moments))


def _where_last(timestep: TimeStep, new: Any, old: Any) -> Any:
    """`new` if the episode ends, else `old`."""
    is_last = timestep.step_type == StepType.LAST
    return jax.tree.map(lambda x, y: jnp.where(is_last, x, y), new, old)


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
    state, episodic = _receive(
        params, state, timestep, arm, drawn, config=config, networks=networks
    )
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
    if recomputes(config):
        extras["episodic_reward"] = episodic
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
) -> tuple[ActorState, jax.Array]:
    """The state with the rewards of a time step, and its episodic reward `[]`.

    With arm and previous action on a first step.
    """
    episodic = jnp.zeros((), jnp.float32)
    is_first = timestep.step_type == StepType.FIRST
    if is_curious(config):
        reward, episodic, kept = intrinsic.reward(
            config, networks, params.intrinsic, state.intrinsic, timestep.observation, is_first
        )
        state = state._replace(intrinsic_reward=reward, intrinsic=kept)

    def add(total: jax.Array, reward: jax.Array) -> jax.Array:
        return jnp.where(is_first, 0.0, total + reward)

    state = state._replace(
        arm=jnp.where(is_first, arm, state.arm),
        previous_action=jnp.where(is_first, previous_action, state.previous_action),
        extrinsic_return=add(state.extrinsic_return, timestep.reward),
        intrinsic_return=add(state.intrinsic_return, state.intrinsic_reward),
    )
    return state, episodic


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
