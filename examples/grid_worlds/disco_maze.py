"""A maze that looks new at every step, and pays nothing (Never Give Up, Badia et al. 2020)."""

import dm_env
import numpy as np
from dm_env import specs

from .random_coin import MOVES, PIXELS

# Red, green, blue of walls; the floor is black and the agent white.
COLOURS = np.array([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255)], np.uint8)


class RandomDiscoMaze(dm_env.Environment):
    """A new maze in each episode, new colours of its walls at each step, and no reward.

    From any of the maze's `CELLS` = 199 free cells exactly one way leads to any other; the agent
    starts in one of them. Actions: 0 up, 1 right, 2 down, 3 left. Hitting a wall terminates the
    episode; after `max_steps` actions it is truncated. Each cell of the walls has one of 5 colours,
    drawn again at each step: they are always new, and nothing that the agent controls. (The size,
    the moves, the colours and the end are the paper's; the limit and how mazes are made are ours.)

    Returns are 0. How much was explored is the number of different cells that the agent has been
    in: `cells_visited`, or the return plus 1 where `reward_visits` pays for them. Train without it,
    evaluate with it.

    The observation is the maze as red, green and blue of 21 x 21 cells: float32 `[1323]` in [0, 1],
    row by row, or with `pixels` uint8 `[21, 21, 3]` for convolutional networks.

    Args:
      max_steps: >= 1. The default is enough to visit all cells, which takes less than 2 * 198.
      pixels: whether the observation is an image.
      reward_visits: pay 1 for each cell that the agent had not yet been in. The start is not paid:
        the optimal return is 198.
      seed: >= 0.

    Attributes:
      optimal_return: of an episode.
    """

    SIDE = 21
    CELLS = 2 * 10 * 10 - 1  # 10 x 10 rooms, and a door between two of them for all but the first

    def __init__(
        self,
        *,
        max_steps: int = 400,
        pixels: bool = False,
        reward_visits: bool = False,
        seed: int = 0,
    ) -> None:
        if max_steps < 1:
            raise ValueError(f"RandomDiscoMaze: max_steps must be at least 1, got {max_steps}.")
        self._max_steps, self._pixels, self._pays = max_steps, pixels, reward_visits
        self.optimal_return = float(reward_visits * (self.CELLS - 1))
        self._generator = np.random.default_rng(seed)
        self._walls, self._visited = np.ones((2, self.SIDE, self.SIDE), bool)
        self._picture = np.zeros((self.SIDE, self.SIDE, 3), np.uint8)
        self._agent = (1, 1)  # row and column
        self._time = 0

    @property
    def cells_visited(self) -> int:
        """Different cells that the agent has been in, in this episode, with the first."""
        return int(self._visited.sum())

    def observation_spec(self) -> specs.BoundedArray:
        """The picture, or its numbers."""
        shape = self._picture.shape
        if self._pixels:
            return specs.BoundedArray(shape, np.uint8, 0, 255, "observation")
        return specs.BoundedArray((int(np.prod(shape)),), np.float32, 0.0, 1.0, "observation")

    def action_spec(self) -> specs.DiscreteArray:
        """The four moves."""
        return specs.DiscreteArray(len(MOVES), np.int32, "action")

    def reset(self) -> dm_env.TimeStep:
        """Makes a maze, and puts the agent anywhere in it."""
        self._walls = _maze(self.SIDE, self._generator)
        free = np.argwhere(~self._walls)
        self._agent = tuple(free[self._generator.integers(len(free))].tolist())
        self._visited = np.zeros_like(self._walls)
        self._visited[self._agent] = True
        self._time = 0
        return dm_env.restart(self._observation())

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        """Moves the agent by one cell; a wall ends the episode."""
        there = tuple((self._agent + MOVES[action]).tolist())  # in the maze: walls are around it
        self._time += 1
        if self._walls[there]:
            return dm_env.termination(0.0, self._observation())
        reward = float(self._pays and not self._visited[there])
        self._agent = there
        self._visited[there] = True
        if self._time == self._max_steps:
            return dm_env.truncation(reward, self._observation())
        return dm_env.transition(reward, self._observation())

    def render(self) -> np.ndarray:
        """What is seen: uint8 `[336, 336, 3]`."""
        return self._picture.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)

    def _observation(self) -> np.ndarray:
        drawn = self._generator.integers(len(COLOURS), size=self._walls.shape)
        self._picture = COLOURS[drawn] * self._walls[..., None]
        self._picture[self._agent] = 255
        if self._pixels:
            return self._picture.copy()
        return self._picture.ravel().astype(np.float32) / 255


def _maze(side: int, generator: np.random.Generator) -> np.ndarray:
    """Walls `[side, side]` bool, by a random walk that goes back where it finds no new room.

    Rooms are the cells with odd row and column; a door opens the cell between two of them.
    """
    rooms = (side - 1) // 2
    orders = generator.permuted(np.tile(np.arange(len(MOVES)), (rooms, rooms, 1)), axis=2)
    untried = MOVES[orders].tolist()
    walls = np.ones((side, side), bool)
    walk = [(1, 1)]
    walls[1, 1] = False
    while walk:
        row, column = walk[-1]
        moves = untried[row // 2][column // 2]
        if not moves:
            walk.pop()
            continue
        down, right = moves.pop()
        there = row + 2 * down, column + 2 * right
        if 0 < there[0] < side and 0 < there[1] < side and walls[there]:
            walls[there] = walls[row + down, column + right] = False
            walk.append(there)
    return walls
