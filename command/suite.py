"""`retrax evaluate-suite` (scores of many games) and `retrax record-states` (start states)."""

import contextlib
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import dm_env
import numpy as np

from ..basics.files import replacing, writing
from ..basics.validation import Range
from ..datatypes import TimeStep
from ..environments.atari import FRAME_SKIP, EmulatedAtari, emulated_game
from ..environments.start_states import save_states
from ..environments.switches import split
from ..evaluation.atari57 import game_slug
from ..evaluation.evaluations import Evaluation, evaluation_environments
from ..training.run_config import Purpose, derive_seed, read_config
from ..training.snapshots import Snapshots
from .parsing import tell
from .trained import evaluate, load_for


def evaluate_suite(
    runs: tuple[Path, ...],
    *,
    output: Path = Path("scores.csv"),
    algorithm: str | None = None,
    episodes: Annotated[int, Range(1)] = 100,
    seed: Annotated[int, Range(0)] = 0,
    starts: tuple[str, ...] = ("noop",),
) -> Path:
    """Evaluate runs of Atari games and write a CSV file of scores for `retrax atari57 --scores`.

    Args:
      runs: run directories of the 57 games; runs of the same game must differ in the seed.
      output: the CSV file to write; it must not exist. Each score is written when it is known.
      algorithm: name of the algorithm in the file; default: `own-` and the agent's name.
      episodes: episodes for each run.
      seed: seed of the evaluation's environments.
      starts: how episodes begin: `noop`, or `states FOLDER`, which has a file `GAME.npz` written by
        record-states for each game (ms-pacman.npz).
    """
    if output.exists():
        raise ValueError(f"--output {output} exists already: choose another.")
    tasks: dict[tuple[str, str, str, int], Path] = {}  # by cells of a row
    for run in runs:
        config = read_config(run)
        try:
            game = game_slug(split(config.environment)[0])
        except ValueError as error:
            raise ValueError(f"{run}: {error}.") from None
        Snapshots(run).find()
        evaluation_environments(config, starts, seed=0, num_envs=1).close()  # or refused
        row = algorithm or f"own-{config.entry.name}", starts[0], game, config.seed
        if row in tasks:
            raise ValueError(f"{tasks[row]} and {run} are both of {game}, seed {config.seed}.")
        tasks[row] = run
    if not tasks:
        raise ValueError("At least one run directory must be given.")
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        opened = output.open("x", newline="", encoding="utf-8", buffering=1)
    with opened as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["algorithm", "regime", "game", "seed", "score"])
        for number, (row, run) in enumerate(tasks.items(), start=1):
            scores = evaluate(run, episodes=episodes, seed=seed, starts=starts)
            writer.writerow([*row, f"{scores.mean_return:.10g}"])
            tell(f"{number} of {len(tasks)}: {row[2]}, seed {row[3]}: {scores.mean_return:.6g}")
    return output


def record_states(
    run: Path,
    *,
    output: Path,
    states: Annotated[int, Range(1)] = 30,
    steps: Annotated[int, Range(1)] = 1000,
    seed: Annotated[int, Range(0)] = 0,
) -> None:
    """Record emulator states from episodes of a run's policy, as start states of later episodes.

    Args:
      run: the run directory, of an Atari game.
      output: the .npz file to write.
      states: states to record, one in each episode. Episodes begin with up to 30 no-ops.
      steps: maximum steps (of 4 frames) of an episode; its state is drawn uniformly among them.
      seed: seed of the episodes and of the draws of states.
    """
    config = read_config(run)
    game, switches = emulated_game(config.environment)
    switches["max_frames"] = FRAME_SKIP * steps
    seed = derive_seed(config.seed, Purpose.RECORDING, seed)
    with contextlib.closing(EmulatedAtari(game, seed=seed, **switches)) as environment:
        found, watch = recorded_states(environment.emulator_state, np.random.default_rng(seed))
        trained = load_for(config, run, environment)
        if output.is_dir():
            raise ValueError(f"--output {output} is a folder: name a file.")
        with replacing(output) as partial:
            save_states(partial, game, [])  # or refused before the episodes are played
            Evaluation(
                config, trained.agent, environment, seed=seed, episodes=states, before_step=watch
            ).run(trained.params, trained.actors, trained.steps)
            save_states(partial, game, found)
    print(f"{states} states of {game} in {output}")


def recorded_states(
    state: Callable[[], bytes], generator: np.random.Generator
) -> tuple[list[bytes], Callable[[TimeStep], None]]:
    """One state of each episode in one environment, a list, and the `before_step` that adds to it.

    All time steps but the last one are equally likely (reservoir sampling: the k-th state replaces
    the recorded one with probability 1 / k). The states are in the order of the episodes.
    """
    states, moments = list[bytes](), 0

    def watch(timestep: TimeStep) -> None:
        nonlocal moments
        kind = timestep.step_type[0]
        if kind == dm_env.StepType.FIRST:
            moments = 0
            states.append(b"")
        if kind != dm_env.StepType.LAST:
            moments += 1
            if generator.integers(moments) == 0:
                states[-1] = state()

    return states, watch
