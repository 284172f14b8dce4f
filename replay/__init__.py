"""Replay: storage of rows, selection of sequences, schedule of updates; in one process, or not."""

from ..datatypes import ReplayConfig, Row, Sample, SequenceSpec
from .interface import DirectPeer, Draw, Peer, Replay, ReplayStatus, RowStore, Writer
from .local import LocalReplay
from .node import ReplayNode
from .remote import NodeWriter, RemoteReplay
from .schedule import UpdateKind, UpdateSchedule
from .selectors import ContextualPriorityTree, TreeSelector, importance_weights

__all__ = [
    "ContextualPriorityTree",
    "DirectPeer",
    "Draw",
    "LocalReplay",
    "NodeWriter",
    "Peer",
    "RemoteReplay",
    "Replay",
    "ReplayConfig",
    "ReplayNode",
    "ReplayStatus",
    "Row",
    "RowStore",
    "Sample",
    "SequenceSpec",
    "TreeSelector",
    "UpdateKind",
    "UpdateSchedule",
    "Writer",
    "importance_weights",
]
