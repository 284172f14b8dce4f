"""Actors, learners and environments with Acme's interfaces, and a user's environment loop."""

import contextlib
import signal
from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import jax
import numpy as np
from dm_env import specs

# Acme imports TensorFlow and Reverb, which this module imports in order.
from ..replay.reverb import library  # isort: skip # noqa: F401

import acme
from acme.utils.loggers import NoOpLogger
from launchpad.launch import worker_manager

from ..datatypes import TimeStep, VectorEnvironment
from ..training.learner import Learner, Snapshot
from ..training.loop import Actor
from .config import AcmeOptions


class AgentActor(acme.core.Actor):
    """A `training.Actor` of one environment for Acme's loop; `before_step` may wait."""

    def __init__(self, actor: Actor, *, before_step: Callable[[], None] = lambda: None):
        self._actor, self._before_step = actor, before_step

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        """Begins an episode."""
        self._actor.observe(_batched(timestep))

    def select_action(self, observation: Any) -> np.ndarray:
        """The action for the time step that was observed last."""
        self._before_step()
        return np.asarray(self._actor.decide()[0])

    def observe(self, action: Any, next_timestep: dm_env.TimeStep) -> None:
        """Stores the time step that follows the selected action."""
        self._actor.observe(_batched(next_timestep))
        if next_timestep.last():
            self._actor.decide()

    def update(self, wait: bool = False) -> None:
        """Fetches newer parameters if they have arrived; with `wait`, waits for the first ones."""
        if wait:
            self._actor.start()
        self._actor.update()


class AgentLearner(acme.core.Learner):
    """A `training.Learner` as Acme's; a step waits `timeout` seconds for an update to be due."""

    def __init__(self, learner: Learner, *, timeout: float = 1.0):
        self._learner, self._timeout = learner, timeout

    def step(self) -> None:
        """One call of updates, if one is due in time."""
        self._learner.step(self._timeout)

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        """The acting parameters as NumPy arrays, once for each name."""
        return [jax.device_get(self._learner.params)] * len(names)

    def save(self) -> Snapshot:
        """A snapshot of learner and replay."""
        return self._learner.snapshot()

    def restore(self, state: Snapshot) -> None:
        """Restores a snapshot; its counters are `steps`, `updates` and `learning_since`."""
        self._learner.restore(state)
        self._learner.publish()


class SingleEnvironment(dm_env.Environment):
    """A vector of one environment (ValueError if it is not) as a `dm_env.Environment`."""

    def __init__(self, environment: VectorEnvironment):
        if environment.num_envs != 1:
            raise ValueError(f"Acme's loop steps one environment, got {environment.num_envs}.")
        self._environment, self._spec = environment, environment.spec
        self._step_type: dm_env.StepType | None = None

    def reset(self) -> dm_env.TimeStep:
        """Begins an episode; after a last step, the vector's next one."""
        if self._step_type is dm_env.StepType.LAST:
            return self._step(np.zeros(self._spec.actions.shape, self._spec.actions.dtype))
        return self._single(self._environment.reset())

    def step(self, action: Any) -> dm_env.TimeStep:
        """Steps; if no episode is running, begins one and ignores the action."""
        begins = self._step_type in (None, dm_env.StepType.LAST)
        return self.reset() if begins else self._step(action)

    def observation_spec(self) -> specs.Array:
        """Of one array."""
        return self._spec.observations

    def action_spec(self) -> specs.Array:
        """A `DiscreteArray` or a `BoundedArray`."""
        return self._spec.actions

    def close(self) -> None:
        """Closes the vector."""
        self._environment.close()

    def _step(self, action: Any) -> dm_env.TimeStep:
        actions = np.asarray(action)[None].astype(self._spec.actions.dtype, casting="same_kind")
        return self._single(self._environment.step(actions))

    def _single(self, timesteps: TimeStep) -> dm_env.TimeStep:
        # Copied: a vector may write its next observation into the same array.
        observation = jax.tree.map(lambda x: np.array(x[0]), timesteps.observation)
        self._step_type = dm_env.StepType(int(timesteps.step_type[0]))
        if self._step_type is dm_env.StepType.FIRST:
            return dm_env.restart(observation)
        reward, discount = (float(x[0]) for x in (timesteps.reward, timesteps.discount))
        return dm_env.TimeStep(self._step_type, reward, discount, observation)


def run_loop(
    options: AcmeOptions,
    environment: VectorEnvironment,
    actor: Actor,
    index: int,
    before_step: Callable[[], None],
) -> None:
    """Runs the environment loop of actor number `index` until `before_step` raises."""
    if worker_manager._SIGNAL_HANDLERS is None:  # elsewhere than in a process of Launchpad's
        # Acme's loop registers a handler, for which Launchpad would take over signals, in any
        # thread. `before_step` ends the loop.
        worker_manager._SIGNAL_HANDLERS = {signal.SIGUSR1: set()}
    # Acme's default logger would write into the home directory.
    make_logger = options.logger_factory or (lambda *labels: NoOpLogger())
    with contextlib.closing(make_logger("actor", "actor_steps", index)) as logger:
        make = options.make_environment_loop or acme.EnvironmentLoop
        parts = SingleEnvironment(environment), AgentActor(actor, before_step=before_step)
        loop = make(*parts, logger=logger, observers=options.observers)
        while True:
            loop.run()


def _batched(timestep: dm_env.TimeStep) -> TimeStep:
    """A vector of one time step; in dm_env's, reward and discount may be None or float64."""
    step_type, reward, discount, observation = timestep
    return TimeStep(
        np.array([step_type], np.int32),
        np.array([0.0 if reward is None else reward], np.float32),
        np.array([1.0 if discount is None else discount], np.float32),
        np.asarray(observation)[None],
    )
