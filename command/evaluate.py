"""`retrax evaluate` and `retrax export`: what can be done with the trained agent of a run."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..basics.validation import Range
from ..evaluation.evaluations import Scores
from ..evaluation.statistics import LEAST_EPISODES
from .exporting import PLATFORMS, Platform, export
from .parsing import parse
from .trained import evaluate


@dataclasses.dataclass(frozen=True, kw_only=True)
class SnapshotArguments:
    """A snapshot of a run."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run directory."""

    snapshot: Annotated[str, tyro.conf.arg(metavar="newest|best|STEPS")] = "newest"
    """Which one; `best` of those that --evaluate-every or a program's evaluator evaluated."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateArguments(SnapshotArguments):
    """Evaluate a snapshot of a run: its greedy policy, in environments of its own."""

    episodes: Annotated[int, Range(1)] = 100
    """Episodes to run."""

    seed: Annotated[int, Range(0)] = 0
    """Seed of the evaluation's environments."""

    starts: tuple[str, ...] = ("noop",)
    """How episodes begin: `noop`, the environment's own reset (Atari: 0 to 30 no-ops), or `states
    FILE`, the emulator states that record-states wrote, in turn."""

    arm: int | None = None
    """Follow this arm of an agent that has a family of policies, from 0; Agent57's arm 0 has no
    intrinsic reward. Without it, the agent chooses."""

    json: bool = False
    """Print one JSON object: mean_return, low, high (95 %; null for fewer than 10 episodes),
    episodes, steps (training steps of the snapshot), mean_length, modes (mean_return and episodes
    of each), metrics (the agent's own), policy (what acted)."""

    video: Path | None = None
    """Write the episodes to this file, .mp4 or .gif."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportArguments(SnapshotArguments):
    """Write the trained agent of a run as plain files that act without retrax."""

    output: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The directory to write, which is empty or does not exist: act.py, agent.json, config.json,
    parameters.npz, and the functions as StableHLO."""

    platforms: tuple[Platform, ...] = PLATFORMS
    """Where the functions can run."""


def evaluate_command(arguments: Sequence[str]) -> int:
    """Evaluates a run and prints the result."""
    given = {**vars(parse(EvaluateArguments, arguments, prog="retrax evaluate"))}
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
    print(export(**vars(parse(ExportArguments, arguments, prog="retrax export"))))
    return 0


def _print(result: Scores, video: Path | None) -> None:
    interval = f"95 %: {result.low:.6g} to {result.high:.6g}"
    if math.isnan(result.low):
        interval = f"no interval: it takes {LEAST_EPISODES} episodes"
    print(
        f"mean return {result.mean_return:.6g} ({interval}) over {result.episodes} "
        f"episode{_s(result.episodes)} of {result.mean_length:.0f} steps, after {result.steps} "
        "steps of training"
    )
    if result.policy:
        print(f"policy: {result.policy}")
    for name, mode in result.modes.items():
        found = f"{mode['mean_return']:.6g} over {mode['episodes']} episode{_s(mode['episodes'])}"
        print(f"{name}: {found if mode['episodes'] else 'no episodes'}")
    if video:
        print(f"video in {video}")


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
