"""The base of our own tasks, and two that are learned in seconds, vectorised in NumPy.

`Catch` needs sight and a little planning; `Memory` needs memory, and nothing else. Their optimal
mean returns are known exactly. `E` denotes the number of environments.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec, TimeStep
from .arrival import arrival, checked_actions, environment_seeds
from .attributes import Attributes

_NOT_KEPT = {"spec", "num_envs"}


class TinyTask:
    """Base of our tasks: restarts, time steps, time limit, one generator for each environment e.

    A task defines how environment e begins (`_begin`), the effect of the actions in all of them
    (`_play`) and the observations (`_observe`). Episodes are truncated after
    `spec.max_episode_steps` actions. `_time` `[E]` are the actions of the running episodes.

    Args:
      spec: of one of them.
      num_envs: E >= 1.
      seed: >= 0. The episodes of environment e depend on `seed` and e alone.

    Raises:
      ValueError: an argument is out of its range.
    """

    optimal_return: float
    """The mean return of an optimal policy."""

    def __init__(self, spec: EnvironmentSpec, *, num_envs: int, seed: int) -> None:
        sources = environment_seeds(seed, num_envs)
        self._generators = [np.random.default_rng(source) for source in sources]
        self._starts = np.ones(num_envs, bool)  # its next step is the first of an episode
        self._time = np.zeros(num_envs, np.int64)
        self.spec, self.num_envs = spec, num_envs

    def reset(self) -> TimeStep:
        """Starts a new episode in every environment: first steps, `[E, ...]`."""
        self._starts[:] = True
        return self.step(np.zeros(self.num_envs, np.int32))

    def step(self, actions: np.ndarray) -> TimeStep:
        """Takes actions `[E]` and returns the time steps that follow, `[E, ...]`.

        Raises:
          ValueError: the actions are not E integers of the action spec.
        """
        actions = checked_actions(actions, self.spec.actions, self.num_envs)
        first = self._starts
        self._time = np.where(first, 0, self._time + 1)
        for e in np.flatnonzero(first):
            self._begin(e, self._generators[e])
        reward, terminated = self._play(actions, ~first)
        truncated = self._time == (self.spec.max_episode_steps or -1)
        self._starts = terminated | truncated
        return arrival(self._observe(), reward, terminated, truncated, first)

    def state(self) -> dict[str, Any]:
        """See `Resumable`."""
        return Attributes(self, _NOT_KEPT).state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Resumable`."""
        Attributes(self, _NOT_KEPT).restore(state)

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`."""
        raise NotImplementedError

    def _begin(self, e: int, generator: np.random.Generator) -> None:
        """Puts environment e at the start of an episode."""
        raise NotImplementedError

    def _play(self, actions: np.ndarray, playing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Moves where `playing` `[E]`; returns reward, terminated `[E]` (0 and False elsewhere)."""
        raise NotImplementedError

    def _observe(self) -> np.ndarray:
        """The observations, in a new array `[E, ...]`. Called once for each time step."""
        raise NotImplementedError


class Catch(TinyTask):
    """A ball falls one row each step; a paddle in the last row catches it (+1) or not (-1).

    The ball starts in a random column of the first row and the paddle in the middle. Actions: 0
    moves the paddle left, 1 nowhere, 2 right; a wall stops it. The episode ends, by termination,
    when the ball is in the last row: after 9 actions. The observation is the board of 10 rows and
    5 columns, flattened: float32 `[50]`, 1 at the ball and at the paddle. (Ours; after bsuite.)

    Args:
      num_envs: see `TinyTask`.
      seed: see `TinyTask`.
    """

    optimal_return = 1.0
    ROWS = 10
    COLUMNS = 5

    def __init__(self, *, num_envs: int = 1, seed: int = 0) -> None:
        cells = self.ROWS * self.COLUMNS
        spec = EnvironmentSpec(
            specs.BoundedArray((cells,), np.float32, 0.0, 1.0, "observation"),
            specs.DiscreteArray(3, np.int32, "action"),
        )
        super().__init__(spec, num_envs=num_envs, seed=seed)
        self._ball, self._paddle = np.zeros((2, num_envs), np.int64)  # columns

    def render(self) -> np.ndarray:
        """The board of the first environment: uint8 `[160, 80, 3]`; ball and paddle are white."""
        board = self._observe()[0].reshape(self.ROWS, self.COLUMNS)
        return enlarge((255 * board[..., None]).astype(np.uint8).repeat(3, axis=2), 16)

    def _begin(self, e: int, generator: np.random.Generator) -> None:
        self._ball[e] = generator.integers(self.COLUMNS)
        self._paddle[e] = self.COLUMNS // 2

    def _play(self, actions: np.ndarray, playing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        moved = np.clip(self._paddle + actions - 1, 0, self.COLUMNS - 1)
        self._paddle = np.where(playing, moved, self._paddle)
        landed = self._time == self.ROWS - 1
        caught = np.where(self._ball == self._paddle, 1.0, -1.0)
        return np.where(landed, caught, 0.0), landed

    def _observe(self) -> np.ndarray:
        board = np.zeros((self.num_envs, self.ROWS, self.COLUMNS), np.float32)
        environments = np.arange(self.num_envs)
        board[environments, self._time, self._ball] = 1.0  # a row for each step
        board[environments, -1, self._paddle] = 1.0
        return board.reshape(self.num_envs, -1)


class Memory(TinyTask):
    """A cue is shown once and queried later: a policy without memory has an expected return of 0.

    The first observation shows the cue, +1 or -1 with equal chance. `length` steps later comes the
    query; between them nothing is shown, not even the time, and actions do nothing. The action at
    the query must match the cue (1 for +1, 0 for -1): reward +1, otherwise -1, and termination.
    The observation is float32 `[2]`: the cue (0 when not shown) and whether this is the query.
    (Ours; after bsuite's memory length.)

    Args:
      length: >= 1, steps from the cue to the query. An episode takes `length` + 1 actions.
      num_envs: see `TinyTask`.
      seed: see `TinyTask`.
    """

    optimal_return = 1.0

    def __init__(self, *, length: int = 10, num_envs: int = 1, seed: int = 0) -> None:
        if length < 1:
            raise ValueError(f"Memory: length must be at least 1, got {length}.")
        spec = EnvironmentSpec(
            specs.BoundedArray((2,), np.float32, -1.0, 1.0, "observation"),
            specs.DiscreteArray(2, np.int32, "action"),
        )
        super().__init__(spec, num_envs=num_envs, seed=seed)
        self._length = length
        self._cue = np.zeros(num_envs, np.int64)

    def render(self) -> np.ndarray:
        """Two squares for the first environment: uint8 `[32, 64, 3]`.

        The left one is green for the cue +1, red for -1 and black when it is not shown; the right
        one is white at the query.
        """
        cue, query = self._observe()[0]
        picture = np.zeros((1, 2, 3), np.uint8)
        picture[0, 0, :2] = 255 * (cue < 0), 255 * (cue > 0)
        picture[0, 1] = 255 * query
        return enlarge(picture, 32)

    def _begin(self, e: int, generator: np.random.Generator) -> None:
        self._cue[e] = 2 * generator.integers(2) - 1

    def _play(self, actions: np.ndarray, playing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        answered = self._time > self._length
        matches = np.where(2 * actions - 1 == self._cue, 1.0, -1.0)
        return np.where(answered, matches, 0.0), answered

    def _observe(self) -> np.ndarray:
        cue = np.where(self._time == 0, self._cue, 0)
        return np.stack([cue, self._time == self._length], axis=1).astype(np.float32)


def enlarge(picture: np.ndarray, factor: int) -> np.ndarray:
    """Each pixel of `[height, width, 3]` becomes a square of factor x factor pixels."""
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)
