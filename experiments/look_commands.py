"""`retrax evaluate`, `retrax plot`, `retrax doctor`: they look, and change no run."""

import contextlib
import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro
from rich.console import Console

from ..evaluation import VideoWriter, mean_and_interval, plot_learning_curves, run_episodes
from . import doctor
from .config import EVALUATION, agent_package, derive_seed, read_config
from .parsing import parse
from .snapshots import Snapshots
from .starts import make_with_starts

_MAX_ENVS = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateArguments:
    """Evaluate the newest snapshot of a run: its greedy policy, in environments of its own."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run directory."""

    episodes: int = 100
    """Episodes to run."""

    seed: int = 0
    """Seed of the evaluation's environments."""

    starts: tuple[str, ...] = ("noop",)
    """How episodes begin: `noop`, as the environment does by itself (Atari: after 0 to 30 no-ops),
    or `states FILE`, in turn in the emulator states that record-states wrote."""

    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print one JSON object: mean_return, low, high (95 %), episodes, steps (of the training that
    the snapshot has behind it), mean_length, modes (mean_return and episodes of each)."""

    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the episodes to this file, .mp4 or .gif."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotArguments:
    """Draw learning curves: runs that differ in the seed alone share a colour."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN...")]
    """Run directories."""

    output: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("curves.png")
    """The PNG file to write."""

    metric: Annotated[str, tyro.conf.arg(metavar="NAME")] = "episode_return"
    """A column of metrics.csv."""

    window: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Moving average over N rows."""


@dataclasses.dataclass(frozen=True)
class DoctorArguments:
    """Versions, tiers, devices and ROMs; for what is missing, the command that mends it."""


def evaluate_command(arguments: Sequence[str]) -> int:
    """Evaluates a run."""
    given = parse(EvaluateArguments, arguments, prog="retrax evaluate")
    for option, value, least in (("episodes", given.episodes, 1), ("seed", given.seed, 0)):
        if value < least:
            raise ValueError(f"--{option} must be at least {least}, got {value}.")
    result = evaluate_run(given)
    if given.json:
        # One episode has no interval, and JSON no NaN.
        print(json.dumps(_without_nan(result)))
    else:
        print(
            f"mean return {result['mean_return']:.6g} (95 %: {result['low']:.6g} to "
            f"{result['high']:.6g}) over {result['episodes']} episodes of "
            f"{result['mean_length']:.0f} steps, after {result['steps']} steps of training"
        )
        for name, mode in result["modes"].items():
            told = f"{mode['mean_return']:.6g} over {mode['episodes']} episodes"
            print(f"{name}: {told if mode['episodes'] else 'none of them'}")
        if given.video:
            print(f"video in {given.video}")
    return 0


def plot_command(arguments: Sequence[str]) -> int:
    """Plots runs."""
    given = parse(PlotArguments, arguments, prog="retrax plot")
    plot_learning_curves(given.runs, given.output, metric=given.metric, window=given.window)
    print(given.output)
    return 0


def doctor_command(arguments: Sequence[str]) -> int:
    """Prints what works."""
    parse(DoctorArguments, arguments, prog="retrax doctor")
    return doctor.print_report(Console())


def evaluate_run(given: EvaluateArguments) -> dict[str, Any]:
    """Evaluates a run; the result is what `--json` prints."""
    config = read_config(given.run)
    seed = derive_seed(config.seed, EVALUATION, given.seed)
    num_envs = 1 if given.video else min(given.episodes, _MAX_ENVS)
    with contextlib.ExitStack() as stack:
        snapshots = stack.enter_context(contextlib.closing(Snapshots(given.run, writable=False)))
        environment = make_with_starts(
            config.environment,
            given.starts,
            seed=seed,
            num_envs=num_envs,
            render=given.video is not None,
        )
        stack.enter_context(contextlib.closing(environment))
        agent = agent_package(config.agent).make_agent(environment.spec, config.agent_config)
        template = jax.eval_shape(agent.init, jax.random.key(0))
        learner, counters = snapshots.restore_learner(template)
        video = stack.enter_context(VideoWriter(given.video)) if given.video else None
        results = run_episodes(
            agent,
            agent.acting_params(learner),
            environment,
            key=jax.random.key(seed),
            num_episodes=given.episodes,
            on_frame=video.append if video else None,
        )
    interval = mean_and_interval(results.returns)
    return {
        "mean_return": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "episodes": len(results.returns),
        "steps": counters["steps"],
        "mean_length": float(results.lengths.mean()),
        "modes": {
            name: {
                "mean_return": float(returns.mean()) if len(returns) else math.nan,
                "episodes": len(returns),
            }
            for name, returns in results.returns_by_mode().items()
        },
    }


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
