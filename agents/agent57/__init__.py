"""Agent57 (Badia et al. 2020): separate values, a family of policies, a bandit over them.

Its parts are modules of pure functions: `families`, `bandit`, `episodic_memory`, `novelty`,
`auxiliary`, `intrinsic`.
"""

from ..base import paper_or_small as default_preset
from .acting import ActingParams, ActorState
from .agent import LearnerState, make_agent
from .config import Config
from .presets import PRESETS

__all__ = [
    "PRESETS",
    "ActingParams",
    "ActorState",
    "Config",
    "LearnerState",
    "default_preset",
    "make_agent",
]
