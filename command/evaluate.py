"""`retrax evaluate` and `retrax export`: what can be done with the trained agent of a run."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..evaluation.evaluations import Scores
from ..evaluation.statistics import LEAST_EPISODES
from .exporting import Platform, export
from .parsing import parse_call
from .trained import evaluate

_SNAPSHOT: dict[str, Any] = {
    "run": Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")],
    "snapshot": Annotated[str, tyro.conf.arg(metavar="newest|best|STEPS")],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Output:
    json: bool = False
    """Print one JSON object: mean_return, low, high (95 %; null for fewer than 10 episodes),
    episodes, steps (training steps of the snapshot), mean_length, modes (mean_return and episodes
    of each), metrics (the agent's own), policy (what acted)."""


def evaluate_command(arguments: Sequence[str]) -> int:
    """Evaluates a run and prints the result."""
    given = parse_call(
        evaluate,
        arguments,
        prog="retrax evaluate",
        base=_Output,
        **_SNAPSHOT,
        starts=tuple[str, ...],
        video=Path | None,
    )
    as_json = given.pop("json")
    result = evaluate(**given)
    if as_json:
        # A few episodes have no interval, and JSON no NaN.
        print(json.dumps(_without_nan(result._asdict())))
    else:
        _print(result, given["video"])
    return 0


def export_command(arguments: Sequence[str]) -> int:
    """Exports a run and prints the directory."""
    output = Annotated[Path, tyro.conf.arg(metavar="DIR")]
    types = {**_SNAPSHOT, "output": output, "platforms": tuple[Platform, ...]}
    print(export(**parse_call(export, arguments, prog="retrax export", **types)))
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
