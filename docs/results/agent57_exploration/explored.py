"""A deep_sea that reports which cells have been visited, for `retrax train` in this directory.

`retrax train agent57 --environment explored:explored,size=20 --steps 50000 ...`

Each EXPLORED_EVERY steps (2,500) of training it prints the steps, the cells visited so far of the
N (N + 1) / 2 that can be, the cells of the diagonal (the way to the treasure) visited so far, the
treasures found, the steps up to the first one, and the visits to each cell of the diagonal since
the line before. Once, it prints the episodes and the steps after which the treasure has been found
in more than a tenth of all episodes: bsuite's measure, an average regret below 0.9.
"""

import os

import numpy as np
from dm_env import StepType

from retrax.environments import TimeStep
from retrax.environments.pure import PureVector
from retrax.environments.pure_tasks import PureDeepSea

TRAINING_ENVS = 8  # evaluation steps another number of environments
EVERY = int(os.environ.get("EXPLORED_EVERY", "2500"))
REGRET = 0.1  # 1 - 0.9


class ExploredDeepSea(PureVector):
    """Counts visits of all environments together."""

    def __init__(self, *, size: int, num_envs: int, seed: int) -> None:
        super().__init__(PureDeepSea(size), num_envs=num_envs, seed=seed)
        self._size = size
        self._visits = np.zeros((size, size), np.int64)
        self._before = np.zeros(size, np.int64)
        self._steps = self._episodes = self._found = self._first = 0
        self._solved = False

    def reset(self) -> TimeStep:
        """Begins to watch."""
        self._newest = super().reset()
        return self._newest

    def step(self, actions: np.ndarray) -> TimeStep:
        """Counts the cells from which the environments moved."""
        before, self._newest = self._newest, super().step(actions)
        playing = before.step_type != StepType.LAST
        self._visits += before.observation[playing].sum(axis=0).astype(int).reshape(self._size, -1)
        last, self._steps = self._steps, self._steps + int(playing.sum())
        self._found += int(np.sum(self._newest.reward > 0))
        self._episodes += int(np.sum(self._newest.step_type == StepType.LAST))
        if self._found and not self._first:
            self._first = self._steps
        if self.num_envs != TRAINING_ENVS:
            return self._newest
        if self._found > REGRET * self._episodes and not self._solved:
            self._solved = True
            print("solved", self._episodes, self._steps)
        if self._steps // EVERY > last // EVERY:
            diagonal = np.diag(self._visits)
            numbers = [self._steps, (self._visits > 0).sum(), (diagonal > 0).sum()]
            print("explored", *numbers, self._found, self._first, *(diagonal - self._before))
            self._before = diagonal.copy()
        return self._newest


def explored(size: int = 10, num_envs: int = 1, seed: int = 0) -> ExploredDeepSea:
    """The environment of the id `explored:explored`."""
    return ExploredDeepSea(size=size, num_envs=num_envs, seed=seed)
