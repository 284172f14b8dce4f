"""Replay over Reverb. Contextual selection and rounds need the learner's own store.

Rows travel in a queue then. Otherwise Reverb's table keeps the sequences and draws them.
"""

from ...datatypes import EnvironmentSpec, ReplayConfig, SequenceSpec
from ..interface import Replay
from ..local import LocalReplay
from .checkpoints import Checkpoints, check_tables
from .layout import QUEUE, SEQUENCES, Layout, is_queued
from .prioritized import PrioritizedReplay
from .queued import QueuedReplay
from .tables import make_tables
from .writer import ReverbWriter

__all__ = [
    "QUEUE",
    "SEQUENCES",
    "Checkpoints",
    "Layout",
    "PrioritizedReplay",
    "QueuedReplay",
    "ReverbWriter",
    "check_tables",
    "is_queued",
    "make_replay",
    "make_tables",
]


def make_replay(
    address: str,
    environment_spec: EnvironmentSpec,
    sequence: SequenceSpec,
    config: ReplayConfig,
    *,
    num_environments: int,
    seed: int,
    max_wait: float = 600.0,
) -> Replay:
    """Makes the learner's side of the replay: the class depends on selector and pace.

    Args:
      address: "host:port" of the server, whose tables are `make_tables` of the same arguments.
      environment_spec: of one environment.
      sequence: length, period and extras of the sequences.
      config: capacity, selection, batch size, ratio.
      num_environments: environments of all actors together.
      seed: of the learner's draws; Reverb's own draws have no seed.
      max_wait: seconds to wait for the server, at the start and for each answer.

    Raises:
      ValueError: the capacity is too small for one sequence per environment, or too large.
    """
    layout = Layout(environment_spec, sequence, config)
    if layout.queued:
        local = LocalReplay(
            environment_spec, sequence, config, num_environments=num_environments, seed=seed
        )
        return QueuedReplay(address, layout, local, max_wait=max_wait)
    return PrioritizedReplay(address, layout, num_environments=num_environments, max_wait=max_wait)
