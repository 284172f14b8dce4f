"""ACER (Wang et al. 2017): actor-critic with experience replay, discrete and continuous."""

from .agent import ActorState, LearnerState, make_agent
from .config import PRESETS, Config, default_preset

__all__ = ["PRESETS", "ActorState", "Config", "LearnerState", "default_preset", "make_agent"]
