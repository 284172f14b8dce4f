"""Environments: vectors of them, in dm_env's time steps, made by one function.

`make` takes an id or a function, and returns a `VectorEnvironment`: `[E, ...]` arrays, an
`EnvironmentSpec` of one of them, episodes that restart automatically. `check_environment` tests a
class of your own that has the same methods.
"""

from ..datatypes import EnvironmentSpec, TimeStep, VectorEnvironment
from .checks import check_environment
from .factory import from_gymnasium_vector, known_environments, make

__all__ = [
    "EnvironmentSpec",
    "TimeStep",
    "VectorEnvironment",
    "check_environment",
    "from_gymnasium_vector",
    "known_environments",
    "make",
]
