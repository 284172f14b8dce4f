"""An actor: an agent in a vector of environments, whose rows go to a replay.

`E` denotes the environments of one actor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType

from ..agents.base import Agent
from ..agents.conformance import timestep_shape
from ..datatypes import Resumable, TimeStep, VectorEnvironment, rows_of
from ..environments.failures import close_quietly, one_sentence
from ..replay.interface import Writer
from .learner import Learner, ParameterClient, copied, packing_of
from .run_config import RunConfig


class RunningReturns:
    """Sums the rewards of running episodes: `sums`, which may be set, are returns and lengths."""

    def __init__(self, num_envs: int) -> None:
        self.sums: Sequence[np.ndarray] = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def add(self, timestep: TimeStep) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Adds time steps `[E, ...]`; the environments whose episodes ended, returns, lengths."""
        first = timestep.step_type == StepType.FIRST
        returns, lengths = self.sums
        returns = np.where(first, 0.0, returns + timestep.reward)
        lengths = np.where(first, 0, lengths + 1)
        self.sums = returns, lengths
        ended = np.flatnonzero(timestep.step_type == StepType.LAST)
        return ended, returns[ended], lengths[ended]


class Actor:
    """Steps E environments together: one jitted decision, one row for each, one step of each.

    Attributes:
      state: the agent's actor states, `[E, ...]`. It may be set, as from a snapshot. Its buffers
        are donated to the next step.
    """

    def __init__(
        self,
        agent: Agent,
        environment: VectorEnvironment,
        writer: Writer,
        parameters: Learner | ParameterClient,
        *,
        keys: jax.Array,
        first_id: int = 0,
        num_actors: int | None = None,
        episode_metrics: Sequence[str] = (),
    ):
        """Begins the actor states; the first step resets the environments, if nothing did before.

        There is a PRNG key for each of the E environments, which the actor owns. The newest
        `params` of the parameters are read at every step. `first_id` is the `actor_id` of the first
        environment among the run's `num_actors` (E if None). `episode_metrics`: see `AgentEntry`.
        """
        self._environment, self._writer, self._parameters = environment, writer, parameters
        self._client = None if isinstance(parameters, Learner) else parameters
        self._agent = agent
        # Donated, the states are updated in place: they may hold a whole episode.
        self._act = jax.jit(jax.vmap(agent.explore, in_axes=(None, 0, 0)), donate_argnums=1)
        # Jitted, each array has a buffer of its own, which donation requires.
        begin = jax.jit(jax.vmap(agent.begin, in_axes=(0, 0, None)), static_argnums=2)
        ids = first_id + np.arange(len(keys), dtype=np.int32)
        self.state = begin(keys, ids, num_actors or len(keys))
        self._episode_metrics = tuple(episode_metrics)
        self._episodes: dict[str, list[float]] = {}
        self.is_stepping = False
        self._timestep: TimeStep | None = None  # the newest
        self._running = RunningReturns(environment.num_envs)

    @classmethod
    def of_run(
        cls,
        config: RunConfig,
        agent: Agent,
        environment: VectorEnvironment,
        index: int,
        writer: Writer,
        parameters: Learner | ParameterClient,
    ) -> "Actor":
        """Actor number `index` of a resolved run, with its share of the run's environments."""
        mine = config.environments_of(index)
        return cls(
            agent,
            environment,
            writer,
            parameters,
            keys=config.prng_keys()[1][mine.start : mine.stop],
            first_id=mine.start,
            num_actors=config.num_envs,
            episode_metrics=config.entry.episode_metrics,
        )

    def reset(self) -> None:
        """Starts a new episode in every environment; ValueError if one cannot be reset."""
        self.is_stepping = True
        with one_sentence("the environments cannot be reset"):
            self._timestep = self._environment.reset()
        self.is_stepping = False
        self._running = RunningReturns(self._environment.num_envs)

    def compile(self) -> None:
        """Compiles the decision before there are parameters; changes nothing."""
        like, state = packing_of(self._agent).like["params"], copied(self.state)
        params = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        num_envs, shapes = self._environment.num_envs, timestep_shape(self._environment.spec)
        timestep = jax.tree.map(lambda x: np.zeros((num_envs, *x.shape), x.dtype), shapes)
        for _ in range(2):  # a computed state may have another weak type than the first
            state = self._act(params, state, timestep).state

    def start(self) -> None:
        """Waits for the first parameters."""
        if self._client is not None:
            self._client.wait()

    def step(self) -> int:
        """One time step in every environment; transitions: none where an episode was at its end."""
        before = self._newest().step_type
        actions = self.decide()
        self.is_stepping = True
        timestep = self._environment.step(actions)
        self.is_stepping = False
        self.observe(timestep)
        self.update()
        return int(np.sum(before != StepType.LAST))

    def decide(self) -> np.ndarray:
        """Actions `[E, ...]` for the newest time steps, last ones too, whose rows it writes."""
        timestep = self._newest()
        decision = self._act(self._parameters.params, self.state, timestep)
        self.state = decision.state
        action, extras = jax.device_get((decision.action, decision.extras))
        priority = 1.0 if self._client is None else self._client.new_priority
        self._writer.write(rows_of(timestep, action, extras), priority)
        ended = np.asarray(timestep.step_type == StepType.LAST)
        self._note({name: extras[name][ended] for name in self._episode_metrics})
        return np.asarray(action)

    def observe(self, timestep: TimeStep) -> None:
        """The time steps `[E, ...]` that follow a decision, or that begin episodes."""
        self._timestep = timestep
        _, returns, lengths = self._running.add(timestep)
        self._note({"return": returns, "length": lengths})

    def update(self) -> None:
        """Counts one time step, and may fetch newer parameters."""
        if self._client is not None:
            self._client.step()

    def running(self) -> dict[str, Any]:
        """The running episodes, for `restore_running`: plain data, not copied, or a ValueError."""
        environment = self._environment
        if not isinstance(environment, Resumable):
            raise ValueError(f"{type(environment).__name__} has no state that could be kept")
        return {
            "environment": environment.state(),
            "timestep": [np.array(x) for x in self._newest()],
            "sums": self._running.sums,
            "parameters": None if self._client is None else self._client.state(),
        }

    def restore_running(self, state: Mapping[str, Any]) -> None:
        """Continues the running episodes of another actor, as the environments do already."""
        self._timestep = TimeStep(*state["timestep"])
        self._running.sums = state["sums"]
        if self._client is not None:
            self._client.restore(state["parameters"])

    def _newest(self) -> TimeStep:
        if self._timestep is None:
            self.reset()
        assert self._timestep is not None
        return self._timestep

    def take_episodes(self) -> dict[str, list[float]]:
        """`return`, `length` and episode metrics of episodes that ended since the last call."""
        episodes, self._episodes = self._episodes, {}
        return episodes

    def close(self) -> None:
        """Closes the writer and the environments."""
        self._writer.close()
        close_quietly(self._environment, has_failed=self.is_stepping)

    def _note(self, ended: dict[str, np.ndarray]) -> None:
        for name, values in ended.items():
            self._episodes.setdefault(name, []).extend(values.tolist())
