"""An agent as an actor of many environments, and as Acme's, which `acme.EnvironmentLoop` runs.

`E` denotes the environments of one actor.
"""

from collections.abc import Sequence
from typing import Any

import dm_env
import jax
import numpy as np
from dm_env import specs

from ..agents.base import Agent, Decision
from ..datatypes import TimeStep, VectorEnvironment
from ..experiments.loop import rows_of
from ..replay.paced import Writer
from .acme_library import acme
from .parameters import ParameterClient


class VectorActor:
    """The actor of E environments: one call decides on a time step of each, last ones too.

    Attributes:
      state: the agent's actor states, `[E, ...]`; may be set, to go on from a snapshot. Its buffers
        are donated to the next step.
      episode_extras: those of `SequenceSpec.episode_extras`, by name, of the episodes that the
        newest call of `act` has seen the end of.
    """

    def __init__(
        self,
        agent: Agent,
        client: ParameterClient,
        *,
        keys: jax.Array,
        writers: Sequence[Writer],
        first_id: int = 0,
        num_actors: int = 1,
    ):
        """Begins.

        Args:
          agent: whose `explore` (or, without writers, `exploit`) is used.
          client: where the parameters come from; `client.wait()` before the first step.
          keys: PRNG keys `[E]`, for `agent.begin`.
          writers: where the rows of each environment go; none for an evaluator.
          first_id: which of the program's environments is the first of these.
          num_actors: environments of the whole program.
        """
        self._client, self._writers = client, writers
        act = agent.explore if writers else agent.exploit
        # Donated, the states are updated in place: they may hold whole episodes.
        self._act = jax.jit(jax.vmap(act, in_axes=(None, 0, 0)), donate_argnums=1)
        params = jax.eval_shape(lambda key: agent.acting_params(agent.init(key)), keys[0])
        self._params_shape = params
        begin = jax.jit(jax.vmap(agent.begin, in_axes=(0, 0, None)), static_argnums=2)
        ids = first_id + np.arange(len(keys), dtype=np.int32)
        self.state = begin(keys, ids, num_actors)
        self.episode_extras: dict[str, list[float]] = {}
        self._extra_names = agent.sequence.episode_extras

    def compile(self, timesteps: TimeStep) -> None:
        """Compiles for time steps like these, before there are parameters; changes nothing."""
        zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), self._params_shape)
        params, state = jax.device_put(zeros), jax.tree.map(lambda x: x.copy(), self.state)
        for _ in range(2):  # a state that was computed may be of another weak type than the first
            state = self._act(params, state, timesteps).state

    def act(self, timesteps: TimeStep) -> np.ndarray:
        """Decides on time steps `[E, ...]`, and writes their rows; actions `[E, ...]`."""
        decision: Decision = self._act(self._client.params, self.state, timesteps)
        self.state = decision.state
        action: np.ndarray = np.asarray(decision.action)
        if self._writers:
            extras = jax.device_get(decision.extras)
            self._write(timesteps, action, extras)
            ended = timesteps.step_type == dm_env.StepType.LAST
            self.episode_extras = {name: extras[name][ended].tolist() for name in self._extra_names}
        return action

    def update(self, wait: bool = False) -> None:
        """Takes over parameters that have arrived."""
        if wait:
            self._client.wait()
        self._client.step()

    def _write(self, timesteps: TimeStep, action: np.ndarray, extras: Any) -> None:
        rows = rows_of(timesteps, action, extras)
        priority = self._client.notes.get("new_priority")
        for index, writer in enumerate(self._writers):
            if priority is not None:
                writer.new_priority = priority
            writer.write(jax.tree.map(lambda x, index=index: x[index], rows))


class Actor(acme.core.Actor):
    """A `VectorActor` of one environment for Acme's own loop."""

    def __init__(
        self,
        agent: Agent,
        client: ParameterClient,
        *,
        key: jax.Array,
        writer: Writer | None,
        actor_id: int = 0,
        num_actors: int = 1,
    ):
        """Begins; the arguments are those of `VectorActor`, for one environment."""
        self.vector = VectorActor(
            agent,
            client,
            keys=key[None],
            writers=() if writer is None else (writer,),
            first_id=actor_id,
            num_actors=num_actors,
        )
        self._timestep: TimeStep | None = None

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        """See `acme.core.Actor`."""
        self._timestep = _vector(timestep)

    def select_action(self, observation: Any) -> np.ndarray:
        """See `acme.core.Actor`; the observation is that of the newest time step."""
        del observation
        action: np.ndarray = self.vector.act(self._timestep)[0]
        return action

    def observe(self, action: Any, next_timestep: dm_env.TimeStep) -> None:
        """See `acme.core.Actor`; the action must be the one that was selected."""
        del action
        self._timestep = _vector(next_timestep)
        if next_timestep.last():
            self.vector.act(self._timestep)  # the agent sees last steps too

    def update(self, wait: bool = False) -> None:
        """See `acme.core.Actor`: takes over parameters that have arrived."""
        self.vector.update(wait)


class SingleEnvironment(dm_env.Environment):
    """A vector of one environment as a `dm_env.Environment`, time steps in arrival form."""

    def __init__(self, environment: VectorEnvironment):
        """Takes it over.

        Args:
          environment: with `num_envs` 1.

        Raises:
          ValueError: it has more.
        """
        if environment.num_envs != 1:
            raise ValueError(
                f"An actor steps one environment, got a vector of {environment.num_envs}."
            )
        self._environment = environment
        # What the environment returned last decides how the next episode begins.
        self._step_type: int | None = None

    def reset(self) -> dm_env.TimeStep:
        """Begins an episode: the next one, if one has just ended."""
        if self._step_type == dm_env.StepType.LAST:
            # As in a training loop in one process, which never resets.
            return self._single(self._environment.step(self._actions(self._ignored())))
        return self._single(self._environment.reset())

    def step(self, action: Any) -> dm_env.TimeStep:
        """Takes an action; where there is no episode, begins one and ignores the action."""
        if self._step_type in (None, dm_env.StepType.LAST):
            return self.reset()
        return self._single(self._environment.step(self._actions(action)))

    def observation_spec(self) -> specs.Array:
        """See `dm_env.Environment`."""
        return self._environment.spec.observations

    def action_spec(self) -> specs.Array:
        """See `dm_env.Environment`."""
        return self._environment.spec.actions

    def reward_spec(self) -> specs.Array:
        """See `dm_env.Environment`."""
        return self._environment.spec.rewards

    def discount_spec(self) -> specs.Array:
        """See `dm_env.Environment`."""
        return self._environment.spec.discounts

    def close(self) -> None:
        """Closes the vector."""
        self._environment.close()

    def _ignored(self) -> np.ndarray:
        return np.zeros(self._environment.spec.actions.shape)

    def _actions(self, action: Any) -> np.ndarray:
        return np.asarray(action, self._environment.spec.actions.dtype)[None]

    def _single(self, timesteps: TimeStep) -> dm_env.TimeStep:
        # Copies: a vector may use its arrays again.
        timestep = jax.tree.map(lambda x: np.array(x[0]), timesteps)
        self._step_type = int(timestep.step_type)
        return timestep


def _vector(timestep: dm_env.TimeStep) -> TimeStep:
    """A time step of dm_env, with its rewards of None or float64, as a vector of one."""
    reward = 0.0 if timestep.reward is None else timestep.reward
    discount = 1.0 if timestep.discount is None else timestep.discount
    return TimeStep(
        step_type=np.array([timestep.step_type], np.int32),
        reward=np.array([reward], np.float32),
        discount=np.array([discount], np.float32),
        observation=np.asarray(timestep.observation)[None],
    )
