"""Environments: vectors of them, in dm_env's time steps, made by one function.

`make` takes an id (our tiny tasks such as `catch`, Atari games, tasks of the DeepMind Control
Suite, anything registered with Gymnasium or as an entry point, `my_module:NAME`) or a function that
makes a Gymnasium or a dm_env environment. It returns a `VectorEnvironment`: `[E, ...]` arrays, an
`EnvironmentSpec` of one of them, episodes that restart automatically. `from_gymnasium_vector` makes
one of a `gymnasium.vector.VectorEnv` or of a pool of EnvPool. `check_environment` tests a class of
your own that has the same methods.
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
