"""Trained agents from run directories: loaded, ready to act, evaluated, and plotted."""

import contextlib
import dataclasses
import json
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.conformance import check_precision
from ..agents.trained import TrainedAgent
from ..basics.validation import Range
from ..datatypes import VectorEnvironment
from ..environments.failures import closing_quietly
from ..environments.sequential import SequentialVector
from ..evaluation import Evaluation, Scores, VideoWriter, plot_learning_curves
from ..evaluation.arguments import checked
from ..evaluation.evaluations import MAX_ENVS, begin_states, evaluation_environments
from ..evaluation.statistics import LEAST_EPISODES
from ..training.run_config import PROGRAM, Purpose, RunConfig, derive_seed, read_config
from ..training.snapshots import BestParameters, Snapshots, actor_files, in_order, read_actor
from .exported_agent import fitting
from .parsing import parse_call
from .training import own_code


@checked
def load_agent(run: Path | str, snapshot: int | str = "newest") -> TrainedAgent:
    """The trained agent of a run directory.

    Args:
      run: the run directory.
      snapshot: `newest`, a number of steps, or `best`: the parameters with the best evaluation.

    Raises:
      ValueError: there is no run, no such snapshot, or its agent or environment is missing.
    """
    run = Path(run).absolute()  # the environment may change the working directory
    config = read_config(run)
    with closing_quietly(config.make_environment(seed=0, num_envs=1)) as environment:
        return load_for(config, run, environment, snapshot)


def load_for(
    config: RunConfig, run: Path, environment: VectorEnvironment, snapshot: int | str = "newest"
) -> TrainedAgent:
    """The trained agent of a run, for an environment, which may be closed afterwards."""
    check_precision()
    key, spec = jax.random.key(0), environment.spec
    with own_code(config):
        agent = config.entry.make_agent(spec, config.agent_config)
        template = jax.eval_shape(agent.init, key)
    best, snapshots, actors, like = BestParameters(run), Snapshots(run), None, {}

    def states(num_envs: int) -> Any:
        return jax.eval_shape(lambda key: begin_states(agent, key, num_envs), key)

    if config.entry.warm_start is not None:
        like = {"actors": states(config.num_envs)}
    if snapshot == "best" and best.exists:
        kept = best.read(params=jax.eval_shape(agent.acting_params, template), **like)
        params, steps, actors = jax.device_put(kept.params), kept.steps, kept.actors
    else:
        steps = snapshots.find(snapshot)
        params = agent.acting_params(snapshots.read(steps, learner=template).learner)
    if like and actors is None:
        files = actor_files(run) if (run / PROGRAM).is_file() else []
        workers = in_order({path.parents[1] for path in run.glob("workers/*/snapshots/*.npz")})
        if 0 < (n := len(files) + len(workers)) < config.num_actors:
            raise ValueError(f"{run} has the states of {n} of {config.num_actors} actors.")
        each = states(config.environments_per_actor)
        found = [read_actor(path, each) for path in files]
        found += [x.read(x.newest_whole(), actors=each).actors for x in map(Snapshots, workers)]
        found = found or [snapshots.read(steps, **like).actors]
        actors = jax.tree.map(lambda *x: jnp.concatenate(x), *found)

    def see(observation: Any) -> np.ndarray:
        found = observation
        if library is not None:
            found = np.empty(spec.observations.shape, spec.observations.dtype)
            library.see.read(observation, found)
        return fitting("observation", found, spec.observations)

    def take(action: np.ndarray) -> Any:
        return action[()] if library is None else library.act(action[None])[0]

    library = environment if isinstance(environment, SequentialVector) else None
    return TrainedAgent(agent, params, spec, config, steps, actors, see, take)


@checked
def evaluate(
    run: Path | str,
    *,
    snapshot: int | str = "newest",
    episodes: Annotated[int, Range(1)] = 100,
    seed: Annotated[int, Range(0)] = 0,
    starts: Sequence[str] = ("noop",),
    arm: int | None = None,
    video: Path | str | None = None,
) -> Scores:
    """Evaluates the greedy policy of a run's snapshot, in separate environments.

    Args:
      run: the run directory.
      snapshot: `newest`, a number of steps, or `best`: the parameters with the best evaluation.
      episodes: episodes to run.
      seed: seed of the evaluation's environments.
      starts: how episodes begin: `noop`, the environment's own reset (Atari: 0 to 30 no-ops), or
        `states FILE`, the emulator states written by record-states, in turn (in a folder: the file
        of the game, such as ms-pacman.npz).
      arm: follow this arm (from 0) of an agent with a family of policies; Agent57's arm 0 has no
        intrinsic reward. Without it, the agent chooses.
      video: write the episodes to this file, .mp4 or .gif.

    Raises:
      ValueError: an argument is wrong, or `load_agent` refuses the run.
    """
    run, video = Path(run).absolute(), video and Path(video).absolute()
    config = read_config(run)
    if arm is not None:
        if config.entry.with_arm is None:
            raise ValueError(f"{config.agent} has no arms, so arm {arm} cannot be evaluated.")
        chosen = config.entry.with_arm(config.agent_config, arm)
        config = dataclasses.replace(config, agent_config=chosen)
    seed = derive_seed(config.seed, Purpose.EVALUATION, seed)
    num_envs = 1 if video else min(episodes, MAX_ENVS)
    with contextlib.ExitStack() as stack:
        environment = evaluation_environments(
            config, starts, seed=seed, num_envs=num_envs, render=video is not None
        )
        stack.enter_context(closing_quietly(environment))
        if statistics := getattr(environment, "statistics", ""):
            logging.getLogger("retrax").warning(statistics)
        trained = load_for(config, run, environment, snapshot)
        rate = getattr(environment, "frames_per_second", None)  # a user's: may be anything
        rate = rate if isinstance(rate, int | float) and 0 < rate < math.inf else None
        on_frame = stack.enter_context(VideoWriter(video, rate)).append if video else None
        made = config, trained.agent, environment
        evaluation = Evaluation(*made, seed=seed, episodes=episodes, on_frame=on_frame)
        return evaluation.run(trained.params, trained.actors, trained.steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Output:
    json: bool = False
    """Print one JSON object: mean_return, low, high (95 %; null for fewer than 10 episodes),
    episodes, steps (training steps of the snapshot), mean_length, modes (mean_return and episodes
    of each), metrics (the agent's own), policy (which one acted)."""


def evaluate_command(arguments: Sequence[str]) -> int:
    """Evaluates a run and prints the result."""
    given = parse_call(evaluate, arguments, prog="retrax evaluate", base=_Output)
    as_json = given.pop("json")
    with contextlib.redirect_stdout(sys.stderr):  # whatever environments print
        result = evaluate(**given)
    if as_json:  # a few episodes have no interval, and JSON no NaN
        print(json.dumps(json.loads(json.dumps(result._asdict()), parse_constant=lambda _: None)))
        return 0
    interval = f"95 %: {result.low:.6g} to {result.high:.6g}"
    if math.isnan(result.low):
        interval = f"no interval: it needs at least {LEAST_EPISODES} episodes"
    print(
        f"mean return {result.mean_return:.6g} ({interval}) over {result.episodes} episode"
        f"{'s' * (result.episodes > 1)} of {result.mean_length:.0f} steps, after {result.steps} "
        f"steps of training{', the best snapshot' * (given['snapshot'] == 'best')}"
    )
    if result.policy:
        print(f"policy: {result.policy}")
    for name, x in result.modes.items():
        found = f"{x['mean_return']:.6g} over {x['episodes']} episode{'s' * (x['episodes'] > 1)}"
        print(f"{name}: {found if x['episodes'] else 'no episodes'}")
    if given["video"]:
        print(f"video in {given['video']}")
    return 0


def plot_command(arguments: Sequence[str]) -> int:
    """Plots runs and prints the file."""
    given = parse_call(plot_learning_curves, arguments, prog="retrax plot")
    output = given.pop("output") or Path("curves.png")
    plot_learning_curves(output=output, **given)
    print(output)
    return 0
