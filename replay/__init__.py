"""What is stored, how sequences are selected, and the store of one process."""

from .selectors import Selector, importance_weights, make_selector
from .spec import ReplayConfig, Row, Sample, SequenceSpec
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
