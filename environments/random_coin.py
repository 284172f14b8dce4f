"""A room with one coin: the only reward, each time elsewhere (Agent57, Badia et al. 2020).

`E` denotes the number of environments.
"""

import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec
from .tiny import TinyTask, enlarge

# Actions 0 to 3 as rows and columns: up, right, down, left.
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])


class RandomCoin(TinyTask):
    """An agent walks to a coin: +1, and the episode ends.

    Agent and coin start in different random cells of a square room. Actions: 0 up, 1 right, 2 down,
    3 left; a wall stops the agent. Reaching the coin pays 1 and terminates; after `max_steps`
    actions the episode is truncated, so with discount 1. The optimal return is 1; uniformly random
    play has 0.295 in the mean (in the default room).

    The observation is float32 `[4 * side]`: the agent's row, its column, the coin's row and its
    column, each as `side` numbers of which one is 1. (The room, the moves and the limit are the
    paper's; the paper does not say what is seen, so that is ours: a picture of the room would ask
    for perception too, which is not what the task is about.)

    Args:
      side: >= 2, cells along a wall of the room.
      max_steps: >= 1, actions until an episode is cut off. With fewer than 2 * `side` - 2 some
        coins are out of reach.
      num_envs: see `TinyTask`.
      seed: see `TinyTask`.
    """

    optimal_return = 1.0

    def __init__(
        self, *, side: int = 15, max_steps: int = 200, num_envs: int = 1, seed: int = 0
    ) -> None:
        if side < 2:
            raise ValueError(f"RandomCoin: side must be at least 2, got {side}.")
        if max_steps < 1:
            raise ValueError(f"RandomCoin: max_steps must be at least 1, got {max_steps}.")
        spec = EnvironmentSpec(
            specs.BoundedArray((4 * side,), np.float32, 0.0, 1.0, "observation"),
            specs.DiscreteArray(len(MOVES), np.int32, "action"),
            max_episode_steps=max_steps,
        )
        super().__init__(spec, num_envs=num_envs, seed=seed)
        self._side = side
        self._agent, self._coin = np.zeros((2, num_envs, 2), np.int64)  # row and column

    def render(self) -> np.ndarray:
        """The room of the first environment: uint8 `[16 side, 16 side, 3]`.

        The agent is white and the coin yellow.
        """
        picture = np.zeros((self._side, self._side, 3), np.uint8)
        picture[tuple(self._coin[0])] = 255, 255, 0
        picture[tuple(self._agent[0])] = 255
        return enlarge(picture, 16)

    def _begin(self, e: int, generator: np.random.Generator) -> None:
        cells = generator.choice(self._side**2, size=2, replace=False)
        self._agent[e], self._coin[e] = np.transpose(np.divmod(cells, self._side))

    def _play(self, actions: np.ndarray, playing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        moved = np.clip(self._agent + MOVES[actions], 0, self._side - 1)
        self._agent = np.where(playing[:, None], moved, self._agent)
        found = (self._agent == self._coin).all(axis=1)
        return found.astype(np.float32), found

    def _observe(self) -> np.ndarray:
        numbers = np.concatenate([self._agent, self._coin], axis=1)
        return np.eye(self._side, dtype=np.float32)[numbers].reshape(self.num_envs, -1)
