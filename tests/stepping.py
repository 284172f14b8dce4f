"""Stepping a vector of environments: what tests of all kinds of them have in common."""

import dm_env
import gymnasium
import numpy as np
from dm_env import specs
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

FIRST, MID, LAST = (int(kind) for kind in dm_env.StepType)


class Counting(gymnasium.Env):
    """Shows the steps of an episode, which ends after `length` of them; base of tests' own."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    length = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        seen = np.full(1, self.time, np.float32)
        return seen, 0.0, self.time == self.length, False, {}


def normalised(render_mode=None):
    """A pendulum with running statistics."""
    inner = gymnasium.make("Pendulum-v1", max_episode_steps=30, render_mode=render_mode)
    return NormalizeReward(NormalizeObservation(inner))


def random_actions(environment, steps, seed=0):
    """Actions `[steps, E, ...]`, continuous ones within [-1, 1]."""
    spec, generator = environment.spec.actions, np.random.default_rng(seed)
    shape = (steps, environment.num_envs, *spec.shape)
    if isinstance(spec, specs.DiscreteArray):
        return generator.integers(spec.num_values, size=shape)
    return generator.uniform(-1, 1, shape).astype(np.float32)


def play(environment, actions):
    """The time steps that follow a reset, the first one included, one by one."""
    yield environment.reset()
    for action in actions:
        yield environment.step(action)


def history(environment, actions):
    """All fields of these time steps, each stacked over time `[T + 1, E, ...]`."""
    steps = list(play(environment, actions))
    return {name: np.stack([getattr(s, name) for s in steps]) for name in dm_env.TimeStep._fields}
