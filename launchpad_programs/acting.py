"""An agent as Acme's actor, and our environments as Acme's: `acme.EnvironmentLoop` runs them."""

from typing import Any

import dm_env
import jax
import numpy as np
from dm_env import specs

from ..agents.base import Agent, Decision
from ..environments.types import TimeStep, VectorEnvironment
from ..replay.paced import Writer
from ..replay.spec import Row
from .acme_library import acme
from .parameters import ParameterClient


class Actor(acme.core.Actor):
    """One environment's actor: decides on every time step, last ones too, and writes the rows.

    Attributes:
      state: the agent's actor state; may be set, to go on from a snapshot. Its buffers are donated
        to the next step: copy it.
      steps: transitions taken.
    """

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
        """Begins.

        Args:
          agent: whose `explore` (or, without a writer, `exploit`) is used.
          client: where the parameters come from; `client.wait()` before the first step.
          key: a PRNG key, for `agent.begin`.
          writer: where the rows go; None for an evaluator.
          actor_id: which of the program's environments this is.
          num_actors: how many there are.
        """
        self._client, self._writer = client, writer
        # Donated, the state is updated in place: it may hold a whole episode.
        self._act = jax.jit(agent.exploit if writer is None else agent.explore, donate_argnums=1)
        params = jax.eval_shape(lambda key: agent.acting_params(agent.init(key)), key)
        self._params_shape = params
        begin = jax.jit(agent.begin, static_argnums=2)
        self.state = begin(key, np.int32(actor_id), num_actors)
        self.steps = 0
        self._timestep: TimeStep | None = None
        self._decision: Decision | None = None

    def compile(self, timestep: dm_env.TimeStep) -> None:
        """Compiles for time steps like this one, before there are parameters; changes nothing."""
        zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), self._params_shape)
        params, state = jax.device_put(zeros), jax.tree.map(lambda x: x.copy(), self.state)
        for _ in range(2):  # a state that was computed may be of another weak type than the first
            state = self._act(params, state, _arrays(timestep)).state

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        """See `acme.core.Actor`."""
        self._timestep = _arrays(timestep)

    def select_action(self, observation: Any) -> np.ndarray:
        """See `acme.core.Actor`; the observation is that of the newest time step."""
        del observation
        self._decision = self._decide()
        return np.asarray(self._decision.action)

    def observe(self, action: Any, next_timestep: dm_env.TimeStep) -> None:
        """See `acme.core.Actor`."""
        assert self._decision is not None, "select_action comes before observe"
        self._write(np.asarray(action, self._decision.action.dtype), self._decision.extras)
        self._timestep = _arrays(next_timestep)
        self.steps += 1
        if next_timestep.last():
            # The agent sees last steps too; its action there is ignored.
            decision = self._decide()
            self._write(np.asarray(decision.action), decision.extras)

    def update(self, wait: bool = False) -> None:
        """See `acme.core.Actor`: takes over parameters that have arrived."""
        if wait:
            self._client.wait()
        self._client.step()

    def _decide(self) -> Decision:
        decision: Decision = self._act(self._client.params, self.state, self._timestep)
        self.state = decision.state
        if self._writer is None:
            return decision
        action, extras = jax.device_get((decision.action, decision.extras))
        return decision._replace(action=action, extras=extras)

    def _write(self, action: np.ndarray, extras: Any) -> None:
        if self._writer is None:
            return
        timestep = self._timestep
        assert timestep is not None
        if "new_priority" in self._client.notes:
            self._writer.new_priority = self._client.notes["new_priority"]
        self._writer.write(
            Row(
                observation=timestep.observation,
                reward=timestep.reward,
                discount=timestep.discount,
                is_first=timestep.step_type == dm_env.StepType.FIRST,
                is_last=timestep.step_type == dm_env.StepType.LAST,
                action=action,
                extras=extras,
            )
        )


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


def _arrays(timestep: dm_env.TimeStep) -> TimeStep:
    """A time step of dm_env, whose first rewards are None and others float64, as ours."""
    reward = 0.0 if timestep.reward is None else timestep.reward
    discount = 1.0 if timestep.discount is None else timestep.discount
    return TimeStep(
        step_type=np.asarray(timestep.step_type, np.int32),
        reward=np.asarray(reward, np.float32),
        discount=np.asarray(discount, np.float32),
        observation=np.asarray(timestep.observation),
    )
