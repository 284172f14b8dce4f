"""Reactor's actors and evaluators: one time step per call, including last steps."""

from typing import Any

import jax
import jax.numpy as jnp

from ...datatypes import TimeStep
from ...networks import RecurrentNetwork
from .. import recurrent
from ..base import Decision
from ..recurrent import ActorState
from .config import Config


def explore(
    params: Any,
    state: ActorState,
    timestep: TimeStep,
    *,
    config: Config,
    network: RecurrentNetwork,
) -> Decision:
    """Draws an action from the policy."""
    output, memory = recurrent.read(params, state.memory, timestep, network=network)
    key, action_key = jax.random.split(state.key)
    action = jax.random.categorical(action_key, jnp.log(output.policy)).astype(jnp.int32)
    extras = _extras(output.policy, state.memory, config)
    return Decision(action, extras, ActorState(key, memory))


def exploit(
    params: Any,
    state: ActorState,
    timestep: TimeStep,
    *,
    config: Config,
    network: RecurrentNetwork,
) -> Decision:
    """Takes the policy's most probable action."""
    output, memory = recurrent.read(params, state.memory, timestep, network=network)
    action = jnp.argmax(output.policy).astype(jnp.int32)
    extras = _extras(output.policy, state.memory, config)
    return Decision(action, extras, ActorState(state.key, memory))


def extras_spec(num_actions: int, config: Config, network: RecurrentNetwork) -> dict[str, Any]:
    """Shapes of a row's extras: mu(.|x_t), and the recurrent state before t if it is stored."""
    memory = jax.eval_shape(network.initial_state)
    return _extras(jax.ShapeDtypeStruct((num_actions,), jnp.float32), memory, config)


def _extras(policy: Any, memory: Any, config: Config) -> dict[str, Any]:
    return {"mu": policy, **recurrent.memory_extras(memory, config.initial_state == "stored")}
