"""A room with one coin: the only reward, each time elsewhere (Agent57, Badia et al. 2020)."""

import dm_env
import numpy as np
from dm_env import specs

# Actions 0 to 3 as rows and columns: up, right, down, left.
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
PIXELS = 16  # of a side of a cell in pictures


class RandomCoin(dm_env.Environment):
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
      seed: >= 0.
    """

    def __init__(self, *, side: int = 15, max_steps: int = 200, seed: int = 0) -> None:
        if side < 2:
            raise ValueError(f"RandomCoin: side must be at least 2, got {side}.")
        if max_steps < 1:
            raise ValueError(f"RandomCoin: max_steps must be at least 1, got {max_steps}.")
        self._side, self._max_steps = side, max_steps
        self._generator = np.random.default_rng(seed)
        self._agent, self._coin = np.zeros((2, 2), np.int64)  # row and column
        self._time = 0

    def observation_spec(self) -> specs.Array:
        """The two cells."""
        return specs.BoundedArray((4 * self._side,), np.float32, 0.0, 1.0, "observation")

    def action_spec(self) -> specs.DiscreteArray:
        """The four moves."""
        return specs.DiscreteArray(len(MOVES), np.int32, "action")

    def reset(self) -> dm_env.TimeStep:
        """Puts agent and coin into two different cells."""
        cells = self._generator.choice(self._side**2, size=2, replace=False)
        self._agent, self._coin = np.transpose(np.divmod(cells, self._side))
        self._time = 0
        return dm_env.restart(self._observation())

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        """Moves the agent by one cell."""
        self._agent = np.clip(self._agent + MOVES[action], 0, self._side - 1)
        self._time += 1
        if (self._agent == self._coin).all():
            return dm_env.termination(1.0, self._observation())
        if self._time == self._max_steps:
            return dm_env.truncation(0.0, self._observation())
        return dm_env.transition(0.0, self._observation())

    def render(self) -> np.ndarray:
        """The room: uint8 `[16 side, 16 side, 3]`; the agent is white and the coin yellow."""
        picture = np.zeros((self._side, self._side, 3), np.uint8)
        picture[tuple(self._coin)] = 255, 255, 0
        picture[tuple(self._agent)] = 255
        return picture.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)

    def _observation(self) -> np.ndarray:
        numbers = np.concatenate([self._agent, self._coin])
        return np.eye(self._side, dtype=np.float32)[numbers].ravel()
