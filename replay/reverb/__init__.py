"""Replay over Reverb: a table keeps the sequences and draws them, uniformly or by priority.

Contextual selection and rounds need a `LocalReplay`: see `selectors.has_tables`.
"""

from ..checkpoints import Checkpoints
from .replay import ReverbReplay
from .tables import TABLE, Layout, make_tables
from .writer import ReverbWriter

__all__ = ["TABLE", "Checkpoints", "Layout", "ReverbReplay", "ReverbWriter", "make_tables"]
