"""Replay over Reverb. Contextual selection needs the learner's own store: rows travel in a queue.

Otherwise Reverb's table keeps the sequences and draws them.
"""

from ...datatypes import EnvironmentSpec, ReplayConfig, SequenceSpec
from ..interface import Replay
from ..local import LocalReplay
from ..schedule import UpdateSchedule
from .checkpoints import Checkpoints, check_tables
from .contextual import ContextualReplay
from .layout import NEWEST, QUEUE, SEQUENCES, Layout
from .prioritized import PrioritizedReplay
from .rounds import RoundsReplay
from .tables import make_tables
from .writer import ReverbWriter

__all__ = [
    "NEWEST",
    "QUEUE",
    "SEQUENCES",
    "Checkpoints",
    "ContextualReplay",
    "Layout",
    "PrioritizedReplay",
    "ReverbWriter",
    "RoundsReplay",
    "check_tables",
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
    config = config.for_environments(num_environments)
    layout = Layout(environment_spec, sequence, config)
    if config.selector == "contextual":
        local = LocalReplay(
            environment_spec, sequence, config, num_environments=num_environments, seed=seed
        )
        return ContextualReplay(address, layout, local, max_wait=max_wait)
    replayed = PrioritizedReplay(
        address, layout, num_environments=num_environments, max_wait=max_wait
    )
    if config.pace != "rounds":
        return replayed
    return RoundsReplay(
        address,
        layout,
        replayed,
        UpdateSchedule(config, num_environments=num_environments, seed=seed),
        num_environments=num_environments,
        max_wait=max_wait,
    )
