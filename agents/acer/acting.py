"""ACER's actors and evaluators: one time step per call, including last steps."""

from typing import Any

import jax

from ...datatypes import TimeStep
from ...networks import RecurrentNetwork
from .. import recurrent
from ..base import Decision
from ..recurrent import ActorState
from .policies import Policy


def explore(
    params: Any,
    state: ActorState,
    timestep: TimeStep,
    *,
    policy: Policy,
    network: RecurrentNetwork,
    stores_memory: bool,
) -> Decision:
    """Draws an action from the policy."""
    output, memory = recurrent.read(params, state.memory, timestep, network=network)
    key, action_key = jax.random.split(state.key)
    action, extras = policy.draw(action_key, output.policy)
    extras |= recurrent.memory_extras(state.memory, stores_memory)
    return Decision(action, extras, ActorState(key, memory))


def exploit(
    params: Any,
    state: ActorState,
    timestep: TimeStep,
    *,
    policy: Policy,
    network: RecurrentNetwork,
    stores_memory: bool,
) -> Decision:
    """Takes the policy's most probable action, or its mean."""
    output, memory = recurrent.read(params, state.memory, timestep, network=network)
    _, extras = policy.draw(state.key, output.policy)
    extras |= recurrent.memory_extras(state.memory, stores_memory)
    return Decision(policy.greedy(output.policy), extras, ActorState(state.key, memory))
