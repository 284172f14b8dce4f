"""A tiny task of continuous actions: `continuous_tasks:Follow-v0` is learned within seconds.

Each of ten steps shows a random place in [-1, 1]; the reward is minus the squared distance between
the action, from [0, 4], and 2 plus the place. The best return is 0; that of action 2 is -10/3.
"""

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 10


class Follow(gymnasium.Env):
    """See the module."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(0.0, 4.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action):
        reward = -float(np.square(action[0] - 2.0 - self._place[0]))
        return self._show(), reward, False, False, {}

    def _show(self):
        self._place = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        return self._place


gymnasium.register("Follow-v0", Follow, max_episode_steps=STEPS)
