"""ACER (Wang et al. 2017): actor-critic with experience replay, discrete and continuous."""

from ..base import steps_by_preset
from ..entry import AgentEntry
from ..sequences import ActorState
from .agent import LearnerState, make_agent
from .config import PRESETS, Config, default_preset

__all__ = [
    "AGENT",
    "PRESETS",
    "ActorState",
    "Config",
    "LearnerState",
    "default_preset",
    "make_agent",
]

AGENT = AgentEntry(
    name="acer",
    make_agent=make_agent,
    Config=Config,
    presets=PRESETS,
    default_preset=default_preset,
    # Time steps after which the small presets have solved the task (docs/results).
    default_steps=steps_by_preset({"catch": 40_000, "CartPole-v1": 60_000, "Pendulum-v1": 100_000}),
    evaluation_policy=lambda config: (
        "most probable action, or mean, of the "
        f"{'policy averaged over updates' if config.exploit_average else 'newest policy'}"
    ),
)
