"""Environments of Gymnasium and of dm_env that play a script, whatever is done."""

import dm_env
import gymnasium
import numpy as np
from dm_env import specs
from gymnasium import spaces

from retrax.environments import make

TWO = spaces.Discrete(2)


class Scripted(gymnasium.Env):
    """Step t of an episode shows `see(t)`; `script` has its (reward, terminated, truncated)."""

    def __init__(self, script=(), space=None, see=None, actions=TWO):
        number = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.observation_space = number if space is None else space
        self.action_space, self.script = actions, script
        self.see = see or (lambda t: np.array([float(t)]))
        self.asked, self.seeds, self.closed = [], [], 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.time = 0
        return self.see(0), {}

    def step(self, action):
        self.asked.append(action)
        end = self.script[self.time] if self.script else (0.0, False, False)
        self.time += 1
        return self.see(self.time), *end, {"some": "info"}

    def close(self):
        self.closed += 1


class ScriptedToo(dm_env.Environment):
    """The same of dm_env: `script` has (reward, discount, is_last)."""

    def __init__(self, script=(), space=None, see=None, actions=None):
        self.space = specs.Array((1,), np.float64) if space is None else space
        self.actions = specs.DiscreteArray(2) if actions is None else actions
        self.script, self.see = script, see or (lambda t: np.array([float(t)]))
        self.asked, self.closed = [], 0

    def observation_spec(self):
        return self.space

    def action_spec(self):
        return self.actions

    def reset(self):
        self.time = 0
        return dm_env.restart(self.see(0))

    def step(self, action):
        self.asked.append(action)
        reward, discount, last = self.script[self.time] if self.script else (0.0, 1.0, False)
        self.time += 1
        kind = dm_env.StepType.LAST if last else dm_env.StepType.MID
        return dm_env.TimeStep(kind, reward, discount, self.see(self.time))

    def close(self):
        self.closed += 1


def is_spec(space):
    """Whether it is dm_env's."""
    return not isinstance(space, spaces.Space)


def any_of(space):
    """An observation of a space or of a spec."""
    if not is_spec(space):
        space.seed(0)
        return space.sample()
    if isinstance(space, dict):
        return {key: any_of(part) for key, part in space.items()}
    return np.full(space.shape, getattr(space, "minimum", 1), space.dtype)


def showing(space, shown, step=2):
    """Two environments, of which the second shows a thing at a step; otherwise what is allowed."""
    kind, usual = (ScriptedToo if is_spec(space) else Scripted), any_of(space)
    ways = iter([lambda t: usual, lambda t: shown if t == step else usual])
    return make(lambda: kind(space=space, see=next(ways)), num_envs=2)


def played(environment, steps):
    """The time steps that follow a reset, the first one included, with zeros for actions."""
    spec = environment.spec.actions
    actions = np.zeros((environment.num_envs, *spec.shape), spec.dtype)
    return [environment.reset()] + [environment.step(actions) for _ in range(steps)]
