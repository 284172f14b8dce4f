"""MinAtar's Breakout: `--environment minatar_breakout:make_breakout`, after `pip install minatar`.

10 x 10 x 4 planes of 0 and 1, sticky actions 0.1 (Young and Tian 2019); an episode is cut off after
1,000 steps. MinAtar's own Gymnasium class has bool observations and no action but its own numbers.
"""

import gymnasium
import numpy as np
from minatar import Environment

_MAX_STEPS = 1000


class _Breakout(gymnasium.Env):
    def __init__(self):
        self._game = Environment("breakout")
        self._actions = self._game.minimal_action_set()
        self.observation_space = gymnasium.spaces.Box(0, 255, self._game.state_shape(), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self._actions))
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._game.seed(seed)
        self._game.reset()
        self._steps = 0
        return self._see(), {}

    def step(self, action):
        reward, over = self._game.act(self._actions[action])
        self._steps += 1
        return self._see(), float(reward), bool(over), self._steps >= _MAX_STEPS, {}

    def _see(self):
        return self._game.state().astype(np.uint8) * 255


def make_breakout():
    """One game."""
    return _Breakout()
