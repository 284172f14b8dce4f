"""bsuite's experiments (Osband et al. 2020), each with bsuite's own record of its episodes.

bsuite is the extra `bsuite`; it is imported for these ids alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ..basics.sentences import did_you_mean
from .arrival import integer_seeds
from .dm_env_adapter import DmEnvVector
from .failures import one_sentence
from .mujoco import MujocoState
from .plain_data import Attributes
from .switches import BSUITE_PREFIX

_INNER = "_env"  # of bsuite's wrappers: what they wrap
_NOT_KEPT = {_INNER, "_logger", "_init_fn"}  # the last is a closure over a generator that is kept


class BsuiteVector(DmEnvVector):
    """E environments of one of bsuite's ids, which bsuite's `Logging` records.

    A record is a list of rows, from names of columns (`steps`, `episode`, `total_return`, and what
    the experiment adds) to numbers, written after 1, 2, ..., 10, 12, 14, 17, 20, 25, 30, ...
    episodes; `state()` has them under "records". `seed` replaces the seeds of bsuite's settings,
    but not the tasks' `mapping_seed`.
    """

    def __init__(self, id: str, *, num_envs: int, seed: int) -> None:
        try:
            from bsuite import bsuite, sweep
            from bsuite.utils.wrappers import Logging
        except ImportError as error:
            raise ImportError(
                f"{BSUITE_PREFIX}{id} needs the package bsuite: pip install 'retrax[bsuite]'"
            ) from error
        if id not in sweep.SETTINGS:
            raise ValueError(f"bsuite has no id {id!r}{did_you_mean(id, sweep.SWEEP)}.")
        with one_sentence(f"{BSUITE_PREFIX}{id} cannot be made"):
            name, settings = id.partition("/")[0], sweep.SETTINGS[id]
            environments = [bsuite.load(name, settings) for _ in range(num_envs)]
        for environment, number in zip(environments, integer_seeds(seed, num_envs), strict=True):
            for part in _parts_of(environment):
                if "_rng" in vars(part):
                    part._rng.seed(int(number))
        self._records = [_Record() for _ in environments]
        pairs = zip(environments, self._records, strict=True)
        super().__init__([Logging(*pair) for pair in pairs])

    def state(self) -> dict[str, Any]:
        """See `Resumable`. With "records", one for each environment."""
        return {**super().state(), "records": [record.rows for record in self._records]}

    def _parts(self, e: int) -> list[Attributes | MujocoState]:
        parts = [*_parts_of(self._environments[e]), self._records[e]]
        return [Attributes(part, _NOT_KEPT) for part in parts]


class _Record:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, data: Mapping[str, Any]) -> None:
        self.rows = [*self.rows, dict(data)]  # a state that was given away stays as it is


def _parts_of(environment: Any) -> Iterator[Any]:
    while environment is not None:
        yield environment
        environment = vars(environment).get(_INNER)
