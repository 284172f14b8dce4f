"""D4PG (Barth-Maron et al. 2018): a distributional critic, N-step returns, prioritised replay."""

from .agent import ActorState, LearnerState, Params, make_agent
from .config import PRESETS, Config, default_preset

__all__ = [
    "PRESETS",
    "ActorState",
    "Config",
    "LearnerState",
    "Params",
    "default_preset",
    "make_agent",
]
