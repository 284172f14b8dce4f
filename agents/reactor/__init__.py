"""Reactor (Gruslys et al. 2018): a recurrent actor-critic on distributional Retrace."""

from ..base import paper_or_small as default_preset
from .agent import ActorState, LearnerState, make_agent
from .config import PRESETS, Config

__all__ = ["PRESETS", "ActorState", "Config", "LearnerState", "default_preset", "make_agent"]
