"""What is stored, how sequences are selected, and the store of one process."""

from ..datatypes import ReplayConfig, Row, Sample, SequenceSpec
from .selectors import Selector, importance_weights, make_selector
from .store import SequenceStore
from .tree import ContextualPriorityTree

__all__ = [
    "ContextualPriorityTree",
    "ReplayConfig",
    "Row",
    "Sample",
    "Selector",
    "SequenceSpec",
    "SequenceStore",
    "importance_weights",
    "make_selector",
]
