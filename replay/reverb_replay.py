"""Replay over Reverb: the names that programs need.

Contextual selection needs the learner's own store: rows travel through a queue (`QueuedReplay`).
Otherwise Reverb's table keeps the sequences and draws them (`TableReplay`), and for on-policy
updates a queue brings the newest (`RoundsReplay`).
"""

from ..datatypes import EnvironmentSpec, ReplayConfig, SequenceSpec
from .paced import LearnerReplay
from .reverb_queued_replay import QueuedReplay
from .reverb_rounds_replay import RoundsReplay
from .reverb_table_replay import TableReplay
from .reverb_tables import QUEUE, SEQUENCES, make_tables, table_name
from .reverb_waiting import ReplayTimeout, Stopped, call, describe, never
from .reverb_writer import RowWriter

__all__ = [
    "QUEUE",
    "SEQUENCES",
    "QueuedReplay",
    "ReplayTimeout",
    "RoundsReplay",
    "RowWriter",
    "Stopped",
    "TableReplay",
    "call",
    "describe",
    "make_learner_replay",
    "make_tables",
    "never",
    "table_name",
]


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
    """`QueuedReplay` for contextual selection, `RoundsReplay` for on-policy updates, `TableReplay`.

    Args:
      address: "host:port" of the server, whose tables are `make_tables` of the same arguments.
      environment_spec: of one environment.
      sequence: how the agent wants sequences cut.
      replay: capacity, selection, batch size, ratio.
      num_environments: environments of all actors together.
      seed: of the draws from the learner's own store; Reverb's table takes none.
      patience: seconds to wait for the server, at the beginning and where it must answer.

    Raises:
      ValueError: the capacity is too small for one sequence per environment, or too large.
    """
    if table_name(replay) == SEQUENCES and not replay.on_policy:
        return TableReplay(address, environment_spec, sequence, replay, patience=patience)
    if table_name(replay) == SEQUENCES:
        return RoundsReplay(
            address,
            environment_spec,
            sequence,
            replay,
            num_environments=num_environments,
            seed=seed,
            patience=patience,
        )
    return QueuedReplay(
        address,
        environment_spec,
        sequence,
        replay,
        num_environments=num_environments,
        seed=seed,
        patience=patience,
    )
