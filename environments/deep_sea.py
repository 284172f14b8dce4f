"""A task that hardly any random play solves: exploration must be deep (after Osband et al. 2019).

`E` denotes the number of environments, `N` the size.
"""

import numpy as np
from dm_env import specs

from ..basics.memory import check_memory
from ..datatypes import EnvironmentSpec
from .tiny import TinyTask, enlarge

MOVE_COST = 0.01


class DeepSea(TinyTask):
    """A diver sinks through N rows and finds the treasure only by going right N times in a row.

    The diver starts at the top left of N x N cells. Each of the two actions takes it one row down,
    one of them also one column to the left and the other to the right; a wall stops it. Going right
    costs 0.01 / N. Going right from the bottom right cell pays 1. After N actions the episode ends
    by termination. Which action goes right is drawn for each cell; on the way to the treasure each
    of the two does equally often (to one), so that a policy which prefers one of them everywhere
    does not find it. The optimal return is 0.99, the next best 0 (always left), and uniformly
    random play has 2^-N - 0.005 in the mean. (As bsuite's "deep_sea", without noise.)

    The observation is float32 `[N * N + screen]`: the cells row by row, 1 where the diver is (on
    the last step it has left them, and all are 0), then a noisy television: `screen` numbers drawn
    uniformly from [0, 1), which mean nothing and make every observation new. Nothing else is
    random: without a screen all episodes begin alike.

    Args:
      size: N >= 2.
      mapping_seed: >= 0, decides which action goes right in which cell; None: action 1 everywhere.
        It is no matter of `seed`, which differs between training, its actors and evaluation.
      screen: >= 0, numbers on the noisy television.
      remote: whether the diver has the remote control: new noise is shown only at the start and
        after a move that is not to the right (the way to the treasure is the dull one), and
        otherwise at each step.
      num_envs: see `TinyTask`.
      seed: see `TinyTask`.

    Attributes:
      right: the action that goes right, in each cell: integers `[N, N]`.

    Raises:
      ValueError: an argument is out of its range, or the memory would not suffice.
    """

    optimal_return = 1 - MOVE_COST

    def __init__(
        self,
        *,
        size: int = 10,
        mapping_seed: int | None = 0,
        screen: int = 0,
        remote: bool = False,
        num_envs: int = 1,
        seed: int = 0,
    ) -> None:
        _check(size, mapping_seed, screen, num_envs)
        spec = EnvironmentSpec(
            specs.BoundedArray((size * size + screen,), np.float32, 0.0, 1.0, "observation"),
            specs.DiscreteArray(2, np.int32, "action"),
        )
        super().__init__(spec, num_envs=num_envs, seed=seed)
        self._size, self._remote = size, remote
        self.right = np.ones((size, size), np.int64)
        if mapping_seed is not None:
            generator = np.random.default_rng(mapping_seed)
            self.right = generator.integers(2, size=(size, size))
            np.fill_diagonal(self.right, generator.permutation(np.arange(size) % 2))
        self._row, self._column = np.zeros((2, num_envs), np.int64)
        self._screen = np.zeros((num_envs, screen), np.float32)

    def render(self) -> np.ndarray:
        """The cells of the first environment: uint8 `[16 N, 16 N, 3]`; the diver is white.

        The treasure is yellow, and the television, if there is one, is the last row in grey.
        """
        picture = np.zeros((self._size, self._size, 3), np.uint8)
        picture[-1, -1, :2] = 255
        if self._screen.size:
            shown = np.resize(self._screen[0], self._size)
            picture = np.concatenate([picture, (255 * shown[None, :, None]).repeat(3, axis=2)])
        if self._row[0] < self._size:
            picture[self._row[0], self._column[0]] = 255
        return enlarge(picture.astype(np.uint8), 16)

    def _begin(self, e: int, generator: np.random.Generator) -> None:
        self._row[e] = self._column[e] = 0
        self._switch(e)

    def _play(self, actions: np.ndarray, playing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        row, column = np.minimum(self._row, self._size - 1), self._column
        right = playing & (actions == self.right[row, column])
        found = right & (row == self._size - 1) & (column == self._size - 1)
        moved = np.clip(column + np.where(right, 1, -1), 0, self._size - 1)
        self._column = np.where(playing, moved, column)
        self._row = self._row + playing
        for e in np.flatnonzero(playing & ~(right & self._remote)):
            self._switch(e)
        return found - right * (MOVE_COST / self._size), self._row == self._size

    def _observe(self) -> np.ndarray:
        cells = np.zeros((self.num_envs, self._size + 1, self._size), np.float32)
        cells[np.arange(self.num_envs), self._row, self._column] = 1.0
        cells = cells[:, :-1].reshape(self.num_envs, -1)  # below the last row is the end
        return np.concatenate([cells, self._screen], axis=1)

    def _switch(self, e: int) -> None:
        """Shows new noise to environment e."""
        if self._screen.size:
            self._screen[e] = self._generators[e].random(self._screen.shape[1], np.float32)


def _check(size: int, mapping_seed: int | None, screen: int, num_envs: int) -> None:
    if size < 2:
        raise ValueError(f"DeepSea: size must be at least 2, got {size}.")
    if mapping_seed is not None and mapping_seed < 0:
        raise ValueError(f"DeepSea: mapping_seed must be None or at least 0, got {mapping_seed}.")
    if screen < 0:
        raise ValueError(f"DeepSea: screen must be at least 0, got {screen}.")
    # The mapping, and the observations, which are made and then put together with the screen.
    needed = 8 * size**2 + 8 * max(num_envs, 1) * (size * (size + 1) + screen)
    check_memory(f"DeepSea of size {size} with a screen of {screen}", needed)
