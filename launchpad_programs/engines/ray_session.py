"""Ray on this machine or a running cluster: checks, start, end."""

import contextlib
from collections.abc import Iterator
from typing import Any

from ..config import ProgramConfig


def check_ray(address: str | None, config: ProgramConfig, *, listen_everywhere: bool) -> None:
    """Refuses what Ray could not run.

    Args:
      address: as `EngineOptions.ray_address`.
      config: of the program.
      listen_everywhere: as of `retrax.launch`.
    """
    raise NotImplementedError


@contextlib.contextmanager
def ray_session(address: str | None, config: ProgramConfig) -> Iterator[Any]:
    """Joins a cluster, or starts Ray on this machine and ends it at the end of the block."""
    raise NotImplementedError
    yield
