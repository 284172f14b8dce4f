"""`retrax evaluate` and `retrax plot`: what a person sees of runs."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..evaluation import plot_learning_curves
from ..evaluation.evaluations import Scores
from ..evaluation.statistics import LEAST_EPISODES
from .parsing import parse_call
from .trained import evaluate


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Output:
    json: bool = False
    """Print one JSON object: mean_return, low, high (95 %; null for fewer than 10 episodes),
    episodes, steps (training steps of the snapshot), mean_length, modes (mean_return and episodes
    of each), metrics (the agent's own), policy (what acted)."""


def evaluate_command(arguments: Sequence[str]) -> int:
    """Evaluates a run and prints the result."""
    given = parse_call(evaluate, arguments, prog="retrax evaluate", base=_Output)
    as_json = given.pop("json")
    result = evaluate(**given)
    if as_json:
        # A few episodes have no interval, and JSON no NaN.
        print(json.dumps(_without_nan(result._asdict())))
    else:
        _print(result, given["video"])
    return 0


def plot_command(arguments: Sequence[str]) -> int:
    """Plots runs and prints the file."""
    given = parse_call(plot_learning_curves, arguments, prog="retrax plot")
    output = given.pop("output") or Path("curves.png")
    plot_learning_curves(output=output, **given)
    print(output)
    return 0


def _print(result: Scores, video: Path | None) -> None:
    interval = f"95 %: {result.low:.6g} to {result.high:.6g}"
    if math.isnan(result.low):
        interval = f"no interval: it takes {LEAST_EPISODES} episodes"
    print(
        f"mean return {result.mean_return:.6g} ({interval}) over {_episodes(result.episodes)} of "
        f"{result.mean_length:.0f} steps, after {result.steps} steps of training"
    )
    if result.policy:
        print(f"policy: {result.policy}")
    for name, mode in result.modes.items():
        found = f"{mode['mean_return']:.6g} over {_episodes(mode['episodes'])}"
        print(f"{name}: {found if mode['episodes'] else 'no episodes'}")
    if video:
        print(f"video in {video}")


def _episodes(number: int) -> str:
    return f"{number} episode{'' if number == 1 else 's'}"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
