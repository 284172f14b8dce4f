"""The random disco maze; it pays for each new cell where PAY_VISITS is set: see disco_maze.sh."""

import os

from grid_worlds import RandomDiscoMaze


def maze(pixels: bool = False, seed: int = 0) -> RandomDiscoMaze:
    """The environment of the id `maze:maze`."""
    pays = bool(os.environ.get("PAY_VISITS"))
    return RandomDiscoMaze(pixels=pixels, reward_visits=pays, seed=seed)
