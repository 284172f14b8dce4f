"""An agent that NumPy can follow: it estimates the mean reward and the mean observation by SGD."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from retrax.agents import Agent, Decision, Update
from retrax.agents.entry import AgentEntry
from retrax.datatypes import ReplayConfig, SequenceSpec
from retrax.environments import make
from retrax.replay.rows import sample_shapes

_REPLAY = ReplayConfig(capacity=200, min_rows=6, batch_size=2, acting_steps_per_update=3.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    rate: float = 0.1
    """Step size."""

    replay: ReplayConfig = _REPLAY
    """Replay."""


class State(NamedTuple):
    """`applied` counts updates and is not read by `gradients`; `key` is."""

    means: dict
    applied: jax.Array
    key: jax.Array


def make_agent(spec, config):
    def act(params, state, timestep):
        key, action_key = jax.random.split(state)
        action = jax.random.randint(action_key, (), 0, spec.actions.num_values, jnp.int32)
        return Decision(action, {}, key)

    def gradients(state, sample):
        observed = sample.rows.observation.reshape(-1, *spec.observations.shape)
        found = {"reward": jnp.mean(sample.rows.reward), "seen": jnp.mean(observed, axis=0)}
        errors = jax.tree.map(jnp.subtract, state.means, found)
        noise = 0.0 * jax.random.uniform(state.key)
        priorities = jnp.full(sample.weights.shape, jnp.abs(errors["reward"]) + noise)
        return errors, Update(priorities, {"error": errors["reward"]})

    def apply(state, gradients):
        means = jax.tree.map(lambda x, g: x - config.rate * g, state.means, gradients)
        return State(means, state.applied + 1, jax.random.split(state.key)[0])

    def init(key):
        seen = jnp.zeros(spec.observations.shape)
        return State({"reward": jnp.ones(()), "seen": seen}, jnp.int32(0), key)

    return Agent(
        init=init,
        acting_params=lambda state: state.means["reward"],
        begin=lambda key, actor_id, num_actors: key,
        explore=act,
        exploit=act,
        gradients=gradients,
        apply=apply,
        sequence=SequenceSpec(length=3),
    )


def agent_and_shapes():
    """The agent on catch, and the shapes of its updates."""
    environment = make("catch", seed=0, num_envs=1)
    agent = make_agent(environment.spec, Config())
    shapes = sample_shapes(environment.spec, agent.sequence, Config().replay, num_envs=1)
    environment.close()
    return agent, shapes


ENTRY = AgentEntry(
    name="average",
    make_agent=make_agent,
    Config=Config,
    presets={"default": Config},
    default_steps=lambda environment, preset: 60,
)
