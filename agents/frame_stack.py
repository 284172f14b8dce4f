"""Several observations seen at once: an agent for stacks of frames, made to take single ones.

DQN (Mnih et al. 2015, Methods) sees four frames. Actors keep the frames of the running episode, the
replay stores each frame once (`SequenceSpec.frame_stack`), so both show the network the same stack.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType, specs

from ..datatypes import EnvironmentSpec, TimeStep, stacked_shape
from .base import ActingFunction, ActorState, Agent, Decision, Params, decorator


class FrameStackState(NamedTuple):
    """The observations before the next one `[k - 1, ...]`, oldest first; the agent's state."""

    frames: jax.Array
    actor: ActorState


def stacked_spec(environment_spec: EnvironmentSpec, frame_stack: int) -> EnvironmentSpec:
    """The spec of stacks of `frame_stack` observations, for which the networks are made."""
    seen = environment_spec.observations
    if frame_stack == 1:
        return environment_spec
    stacked: dict[str, Any] = {"shape": stacked_shape(seen.shape, frame_stack)}
    if isinstance(seen, specs.BoundedArray):
        for name in ("minimum", "maximum"):
            stacked[name] = np.tile(np.broadcast_to(getattr(seen, name), seen.shape), frame_stack)
    return environment_spec._replace(observations=seen.replace(**stacked))


@decorator
def sees_frame_stacks(
    make_agent: Any, environment_spec: EnvironmentSpec, config: Any, **parts: Any
) -> Agent:
    """Where the config's `frame_stack` is above 1, the agent is made for `stacked_spec`.

    It takes single observations.
    """
    count, seen = config.frame_stack, environment_spec.observations
    agent: Agent = make_agent(stacked_spec(environment_spec, count), config, **parts)
    if count == 1:
        return agent

    def begin(key: jax.Array, actor_id: Any, num_actors: int) -> FrameStackState:
        frames = jnp.zeros((count - 1, *seen.shape), seen.dtype)
        return FrameStackState(frames, agent.begin(key, actor_id, num_actors))

    return agent._replace(
        begin=begin,
        explore=_stacking(agent.explore),
        exploit=_stacking(agent.exploit),
        sequence=dataclasses.replace(agent.sequence, frame_stack=count),
    )


def _stacking(act: ActingFunction) -> ActingFunction:
    def stacking(params: Params, state: FrameStackState, timestep: TimeStep) -> Decision:
        is_first = timestep.step_type == StepType.FIRST
        before = jnp.where(is_first, jnp.zeros_like(state.frames), state.frames)
        newest = jnp.asarray(timestep.observation)
        stack = jnp.concatenate([*before, newest], axis=-1)
        decision = act(params, state.actor, timestep._replace(observation=stack))
        frames = jnp.concatenate([before[1:], newest[None]])
        return decision._replace(state=FrameStackState(frames, decision.state))

    return stacking
