"""A maze that looks new at every step, and pays nothing (Never Give Up, Badia et al. 2020).

`E` denotes the number of environments.
"""

import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec
from .random_coin import MOVES
from .tiny import TinyTask, enlarge

# Red, green, blue of walls; the floor is black and the agent white.
COLOURS = np.array([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255)], np.uint8)


class RandomDiscoMaze(TinyTask):
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
      num_envs: see `TinyTask`.
      seed: see `TinyTask`.
    """

    optimal_return = 0.0
    SIDE = 21
    CELLS = 2 * 10 * 10 - 1  # 10 x 10 rooms, and a door between two of them for all but the first

    def __init__(
        self,
        *,
        max_steps: int = 400,
        pixels: bool = False,
        reward_visits: bool = False,
        num_envs: int = 1,
        seed: int = 0,
    ) -> None:
        if max_steps < 1:
            raise ValueError(f"RandomDiscoMaze: max_steps must be at least 1, got {max_steps}.")
        shape = (self.SIDE, self.SIDE, 3)
        image = specs.BoundedArray(shape, np.uint8, 0, 255, "observation")
        vector = specs.BoundedArray((int(np.prod(shape)),), np.float32, 0.0, 1.0, "observation")
        actions = specs.DiscreteArray(len(MOVES), np.int32, "action")
        spec = EnvironmentSpec(image if pixels else vector, actions, max_episode_steps=max_steps)
        super().__init__(spec, num_envs=num_envs, seed=seed)
        self._pixels, self._pays = pixels, reward_visits
        self.optimal_return = float(reward_visits * (self.CELLS - 1))
        self._walls, self._visited = np.ones((2, num_envs, self.SIDE, self.SIDE), bool)
        self._pictures = np.zeros((num_envs, *shape), np.uint8)
        self._agent = np.ones((num_envs, 2), np.int64)  # row and column

    @property
    def cells_visited(self) -> np.ndarray:
        """Different cells that the agent has been in, in this episode, with the first: `[E]`."""
        return self._visited.sum(axis=(1, 2))

    def render(self) -> np.ndarray:
        """What is seen of the first environment: uint8 `[336, 336, 3]`."""
        return enlarge(self._pictures[0], 16)

    def _begin(self, e: int, generator: np.random.Generator) -> None:
        self._walls[e] = _maze(self.SIDE, generator)
        free = np.argwhere(~self._walls[e])
        self._agent[e] = free[generator.integers(len(free))]
        self._visited[e] = False
        self._visited[e][tuple(self._agent[e])] = True

    def _play(self, actions: np.ndarray, playing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        environments = np.arange(self.num_envs)
        row, column = (self._agent + MOVES[actions]).T  # in the maze: there are walls around it
        hit = playing & self._walls[environments, row, column]
        moved = playing & ~hit
        self._agent[moved] = np.stack([row, column], axis=1)[moved]
        new = moved & ~self._visited[environments, row, column]
        self._visited[environments[new], row[new], column[new]] = True
        return new * np.float32(self._pays), hit

    def _observe(self) -> np.ndarray:
        shape = (self.SIDE, self.SIDE)
        drawn = [generator.integers(len(COLOURS), size=shape) for generator in self._generators]
        self._pictures = COLOURS[np.stack(drawn)] * self._walls[..., None]
        self._pictures[np.arange(self.num_envs), self._agent[:, 0], self._agent[:, 1]] = 255
        if self._pixels:
            return self._pictures.copy()
        return self._pictures.reshape(self.num_envs, -1).astype(np.float32) / 255


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
