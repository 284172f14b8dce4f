"""Agent57's presets: the paper's agent, small ones, and the paper's ablations."""

import dataclasses
from collections.abc import Callable
from typing import Any

from ...datatypes import DEFAULT_LIMIT, EnvironmentSpec
from ..base import paper_or_small
from .config import Config

# The ablations (section 4.1): each also removes all parts that the ones before it remove.
_WITHOUT: dict[str, dict[str, Any]] = {
    "meta_controller": {"trace_length": 80, "replay_period": 40},
    "split": {"arm_choice": "uniform", "evaluation": "arm", "discounts": "ngu"},
    "ngu": {"values": "mixed"},
    "r2d2_retrace": {"values": "extrinsic", "arm_choice": "zero"},
    "r2d2": {"target": "double_q"},
}
# R2D2 with the meta-controller over its discounts alone (section 4.1): beside the ladder.
_R2D2_BANDIT = {"discounts": "agent57", "arm_choice": "bandit", "evaluation": "alternate"}
_SMALL_SHORT_TRACE = {"trace_length": 10, "replay_period": 5}
# Of episodes with more steps, the replay of `small` may hold fewer than 50.
_SHORT_EPISODE = 100
_LONG_EPISODES_CAPACITY = 50_000


def _ablation(make: Callable[..., Config], last: str, **changes: Any) -> Callable[[], Config]:
    """A preset without all parts down to `last`; `changes` take precedence."""
    lacking: dict[str, Any] = {}
    for name, missing in _WITHOUT.items():
        lacking |= missing
        if name == last:
            break
    return lambda: make(**(lacking | changes))


def _presets(prefix: str, make: Callable[..., Config], **changes: Any) -> dict[str, Any]:
    """The ladder and R2D2 with a bandit, of one size."""
    return {
        **{f"{prefix}{name}": _ablation(make, name, **changes) for name in _WITHOUT},
        f"{prefix}r2d2_bandit": _ablation(make, "r2d2_retrace", **changes, **_R2D2_BANDIT),
    }


def small_long() -> Config:
    """`small` with a larger replay, for long episodes: its 5,000 rows are ten of Acrobot-v1.

    Where episodes are short, so much experience hides what was found only once.
    """
    small = Config.small()
    replay = dataclasses.replace(small.replay, capacity=_LONG_EPISODES_CAPACITY)
    return dataclasses.replace(small, replay=replay)


PRESETS: dict[str, Callable[[], Config]] = {
    "paper": Config.paper,
    "small": Config.small,
    "small_long": small_long,
    **_presets("", Config.paper),
    **_presets("small_", Config.small, **_SMALL_SHORT_TRACE),
}


def default_preset(environment: str, spec: EnvironmentSpec) -> str:
    """`paper` for large images; else `small`, or `small_long` for episodes of 101 to 9,999 steps.

    The steps are the environment's own limit. An environment without one gets `small`.
    """
    preset = paper_or_small(environment, spec)
    longest = spec.max_episode_steps or 0
    is_long = _SHORT_EPISODE < longest < DEFAULT_LIMIT
    return "small_long" if preset == "small" and is_long else preset
