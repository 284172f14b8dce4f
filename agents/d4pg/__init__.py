"""D4PG (Barth-Maron et al. 2018): a distributional critic, N-step returns, prioritised replay."""

from ..base import paper_or_small as default_preset
from ..base import steps_by_preset
from ..entry import AgentEntry
from ..reward_scale import advise_on_support
from .agent import ActorState, LearnerState, Params, make_agent
from .config import PRESETS, Config

__all__ = [
    "AGENT",
    "PRESETS",
    "ActorState",
    "Config",
    "LearnerState",
    "Params",
    "default_preset",
    "make_agent",
]

AGENT = AgentEntry(
    name="d4pg",
    make_agent=make_agent,
    Config=Config,
    presets=PRESETS,
    default_preset=default_preset,
    evaluation_policy=lambda config: "action of the newest policy, without noise",
    advice=advise_on_support,
    # `small` has then solved the task (docs/results); papers give `control_suite` 1e8.
    default_steps=steps_by_preset({"Pendulum-v1": 40_000}, {"control_suite": 1_000_000}),
)
