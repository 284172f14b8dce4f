"""Agent57's presets: the paper's agent, a small one, and the paper's ablations."""

from collections.abc import Callable
from typing import Any

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


PRESETS: dict[str, Callable[[], Config]] = {
    "paper": Config.paper,
    "small": Config.small,
    **_presets("", Config.paper),
    **_presets("small_", Config.small, **_SMALL_SHORT_TRACE),
}
