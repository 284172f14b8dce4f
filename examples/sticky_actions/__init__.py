"""Actors that mostly repeat their last action: `sticky_actions:ACER` and `sticky_actions:REACTOR`.

An agent of retrax, wrapped: its losses are as they were, as each row has the probabilities mu with
which the actor really acted.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from dm_env import StepType

from retrax.agents import acer, reactor
from retrax.agents.base import Agent, Decision
from retrax.agents.exploration import draw_action
from retrax.datatypes import TimeStep

REPEATED = 0.9  # the share of steps that repeat the last action, whatever the policy says


class ActorState(NamedTuple):
    """An actor's state, and what it needs to repeat actions."""

    agent: Any
    key: jax.Array
    action: jax.Array  # the last one, int32 []


def repeat_actions(agent: Agent, config: Any) -> Agent:
    """The agent with mu = (1 - REPEATED) pi + REPEATED [the last action] in training.

    At the first step of an episode mu is pi. ValueError if the actions are continuous.
    """
    if "drawn" in agent.sequence.extras:
        raise ValueError("sticky_actions needs discrete actions.")

    def begin(key: jax.Array, actor_id: jax.Array, num_actors: int) -> ActorState:
        agent_key, key = jax.random.split(key)
        return ActorState(agent.begin(agent_key, actor_id, num_actors), key, jnp.int32(0))

    def explore(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        decision = agent.explore(params, state.agent, timestep)
        pi = decision.extras["mu"]
        share = jnp.where(timestep.step_type == StepType.FIRST, 0.0, REPEATED)
        mu = (1.0 - share) * pi + share * jax.nn.one_hot(state.action, len(pi))
        key, action_key = jax.random.split(state.key)
        action = draw_action(action_key, mu)
        extras = {**decision.extras, "mu": mu}
        return Decision(action, extras, ActorState(decision.state, key, action))

    def exploit(params: Any, state: ActorState, timestep: TimeStep) -> Decision:
        decision = agent.exploit(params, state.agent, timestep)
        return decision._replace(state=state._replace(agent=decision.state))

    return agent._replace(begin=begin, explore=explore, exploit=exploit)


ACER = acer.AGENT.override("sticky_acer", wrap=repeat_actions)
REACTOR = reactor.AGENT.override("sticky_reactor", wrap=repeat_actions)
