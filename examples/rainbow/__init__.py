"""Rainbow (Hessel et al. 2018) without noisy networks, as a package outside of retrax.

`retrax train rainbow:AGENT --environment CartPole-v1` finds it from the directory that holds it.
"""

from retrax.agents import AgentEntry
from retrax.agents.base import paper_or_small

from .agent import LearnerState, make_agent
from .config import PRESETS, Config

__all__ = ["AGENT", "PRESETS", "Config", "LearnerState", "make_agent"]

AGENT = AgentEntry(
    name="rainbow",
    make_agent=make_agent,
    Config=Config,
    presets=PRESETS,
    default_preset=paper_or_small,
    default_steps=lambda environment, preset: 60_000 if preset == "small" else 50_000_000,
)
