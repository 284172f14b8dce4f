"""Replay of one process: storage of rows, selection of sequences, schedule of updates."""

from ..datatypes import ReplayConfig, Row, Sample, SequenceSpec
from .interface import Draw, Replay, ReplayStatus, Writer
from .local import LocalReplay
from .priorities import importance_weights
from .priority_tree import ContextualPriorityTree
from .schedule import UpdateKind, UpdateSchedule
from .selectors import Selector, make_selector
from .store import SequenceStore

__all__ = [
    "ContextualPriorityTree",
    "Draw",
    "LocalReplay",
    "Replay",
    "ReplayConfig",
    "ReplayStatus",
    "Row",
    "Sample",
    "Selector",
    "SequenceSpec",
    "SequenceStore",
    "UpdateKind",
    "UpdateSchedule",
    "Writer",
    "importance_weights",
    "make_selector",
]
