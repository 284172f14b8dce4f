"""Replay over Reverb. Contextual selection and rounds need the learner's own store.

Rows travel in a queue then. Otherwise Reverb's table keeps the sequences and draws them.
"""

from .checkpoints import Checkpoints
from .replays import make_replay
from .tables import QUEUE, SEQUENCES, Layout, check_tables, is_queued, make_tables
from .writer import ReverbWriter

__all__ = [
    "QUEUE",
    "SEQUENCES",
    "Checkpoints",
    "Layout",
    "ReverbWriter",
    "check_tables",
    "is_queued",
    "make_replay",
    "make_tables",
]
