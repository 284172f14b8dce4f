"""Two tasks of papers on exploration, written against dm_env, and one in JAX: see README.md."""

from .disco_maze import RandomDiscoMaze
from .ledge import Ledge
from .random_coin import RandomCoin

__all__ = ["Ledge", "RandomCoin", "RandomDiscoMaze"]
