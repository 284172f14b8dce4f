"""Two tasks of papers on exploration, written against dm_env: see README.md."""

from .disco_maze import RandomDiscoMaze
from .random_coin import RandomCoin

__all__ = ["RandomCoin", "RandomDiscoMaze"]
