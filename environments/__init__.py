"""Environments: vectors of them, in dm_env's time steps, made by one function.

`make` takes an id (our tiny tasks, `catch` for one, Atari games, tasks of the DeepMind Control
Suite, anything registered with Gymnasium) or a function that makes a Gymnasium environment, and
returns a `VectorEnvironment`: `[E, ...]` arrays, `EnvironmentSpec` for one of them, episodes that
restart by themselves. Write your own class with the same methods and `check_environment` tells you
what it gets wrong.
"""

from ..datatypes import EnvironmentSpec, TimeStep, VectorEnvironment
from .checks import check_environment
from .factory import known_environments, make

__all__ = [
    "EnvironmentSpec",
    "TimeStep",
    "VectorEnvironment",
    "check_environment",
    "known_environments",
    "make",
]
