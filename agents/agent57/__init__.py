"""Agent57 (Badia et al. 2020): separate values, a family of policies, a bandit over them.

`agent` has the agent; `families`, `bandit`, `episodic_memory`, `novelty` are modules of pure
functions.
"""

import dataclasses

from ..base import steps_by_preset
from ..entry import AgentEntry
from .agent import ActingParams, ActorState, LearnerState, make_agent, warm_start
from .config import PRESETS, Config, default_preset

__all__ = [
    "AGENT",
    "PRESETS",
    "ActingParams",
    "ActorState",
    "Config",
    "LearnerState",
    "default_preset",
    "make_agent",
]


AGENT = AgentEntry(
    name="agent57",
    make_agent=make_agent,
    Config=Config,
    presets=PRESETS,
    default_preset=default_preset,
    # Time steps after which `small` has solved the task (docs/results).
    default_steps=steps_by_preset({"deep_sea": 60_000, "memory": 20_000}),
    evaluation_policy=lambda config: (
        "greedy in the values of the chosen arm, "
        f"{'averaged over updates' if config.evaluation_average_decay else 'of the newest update'}"
    ),
    episode_metrics=("arm", "intrinsic_return", "epsilon"),
    evaluation_modes=("greedy_arm", "sampled_arm"),
    warm_start=warm_start,
    with_arm=lambda config, arm: dataclasses.replace(config, evaluation="arm", evaluation_arm=arm),
)
