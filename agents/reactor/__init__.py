"""Reactor (Gruslys et al. 2018): a recurrent actor-critic on distributional Retrace."""

from ..base import steps_by_preset
from ..entry import AgentEntry
from ..reward_scale import advise_on_support
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
    name="reactor",
    make_agent=make_agent,
    Config=Config,
    presets=PRESETS,
    default_preset=default_preset,
    evaluation_policy=lambda config: "most probable action of the newest policy",
    advice=advise_on_support,
    # Time steps after which `small` or `small_short` has solved the task (docs/results).
    default_steps=steps_by_preset({"catch": 20_000, "memory": 20_000, "CartPole-v1": 60_000}),
)
