"""Replay over Reverb: tables, the actors' writers, and the learner's two ways to read.

Contextual selection needs the learner's own store: rows travel through a queue (`QueuedReplay`).
Otherwise Reverb's table keeps the sequences and draws them (`TableReplay`).
"""

from collections.abc import Callable
from typing import Any

from ..environments.types import EnvironmentSpec
from .paced import LearnerReplay
from .reverb_library import reverb
from .reverb_waiting import ReplayTimeout, Stopped, describe, never
from .spec import ReplayConfig, Row, SequenceSpec

QUEUE = "rows"
SEQUENCES = "sequences"


def table_name(replay: ReplayConfig) -> str:
    """The name of the one table: `rows` (a queue) for contextual selection, or `sequences`."""
    return QUEUE if replay.selector == "contextual" else SEQUENCES


def make_tables(
    environment_spec: EnvironmentSpec,
    sequence: SequenceSpec,
    replay: ReplayConfig,
    *,
    num_environments: int,
) -> list[reverb.Table]:
    """The tables of a replay node."""
    raise NotImplementedError


class RowWriter:
    """One environment's rows on their way into Reverb. A `Writer`.

    `write` and `close` raise `Stopped` soon after `stop()` became true.
    """

    def __init__(
        self,
        address: str | reverb.Client,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        replay: ReplayConfig,
        *,
        environment: int,
        stop: Callable[[], bool] = never,
        patience: float = 600.0,
    ):
        """Connects.

        Args:
          address: "host:port" of the server, or a client.
          environment_spec: of the environment.
          sequence: how the agent wants sequences cut.
          replay: as given to `make_tables`.
          environment: its number among all environments of the program, 0 ...
          stop: looked at once a second while the writer waits.
          patience: seconds that rows may wait for the server to take them.
        """
        self.new_priority = 1.0  # of new sequences; the learner knows the largest so far
        self.waiting_seconds = 0.0  # how long `write` has been held up, in total

    def write(self, row: Row) -> None:
        """Takes one unbatched row of NumPy arrays, all extras included."""
        raise NotImplementedError

    def close(self) -> None:
        """Sends what is left, in bounded time."""
        raise NotImplementedError


def make_learner_replay(
    address: str,
    environment_spec: EnvironmentSpec,
    sequence: SequenceSpec,
    replay: ReplayConfig,
    *,
    num_environments: int,
    seed: int,
    patience: float = 600.0,
) -> LearnerReplay:
    """`QueuedReplay` for contextual selection, otherwise `TableReplay`."""
    raise NotImplementedError


__all__ = [
    "QUEUE",
    "SEQUENCES",
    "Any",
    "ReplayTimeout",
    "RowWriter",
    "Stopped",
    "describe",
    "make_learner_replay",
    "make_tables",
    "table_name",
]
