"""`retrax evaluate-suite` (scores of many games) and `retrax record-states` (start states)."""

import contextlib
import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
import tyro

from ..basics.validation import Range
from ..environments.atari import FRAME_SKIP
from ..environments.emulated_atari import EmulatedAtari, emulated_game
from ..environments.start_states import StartStates, check_states_path, save_states
from ..environments.switches import split
from ..evaluation import run_episodes
from ..evaluation.atari57 import game_slug
from ..evaluation.evaluations import states_of
from ..evaluation.state_recorder import StateRecorder
from ..training.config_file import read_config
from ..training.seeds import Purpose, derive_seed
from ..training.snapshots import Snapshots
from .parsing import parse, tell
from .trained import evaluate, load_for

_COLUMNS = ("algorithm", "regime", "game", "seed", "score")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteArguments:
    """Evaluate runs of Atari games and write a CSV file of scores for `retrax atari57 --scores`."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, each of one of the 57 games; those of one game must differ in the seed."""

    output: Path = Path("scores.csv")
    """The CSV file to write; it must not exist. Each score is written as soon as it is known."""

    games: tuple[str, ...] | None = None
    """The games to evaluate, as slugs (ms-pacman) or ids; default: the games of all runs."""

    algorithm: str | None = None
    """Name of the algorithm in the file; default: `own-` and the agent's name."""

    episodes: Annotated[int, Range(1)] = 100
    """Episodes for each run."""

    seed: int = 0
    """Seed of the evaluation's environments."""

    starts: tuple[str, ...] = ("noop",)
    """How episodes begin: `noop`, or `states FOLDER` with a file `GAME.npz` (ms-pacman.npz) of
    record-states for each game."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordArguments:
    """Record emulator states from episodes of a run's policy, as start states of later episodes."""

    run: tyro.conf.Positional[Path]
    """The run directory, of an Atari game."""

    output: Path
    """The .npz file to write."""

    states: Annotated[int, Range(1)] = 30
    """States to record, one of each episode. Episodes begin with up to 30 no-ops."""

    steps: Annotated[int, Range(1)] = 1000
    """Maximum steps (of 4 frames) of an episode; the state is drawn uniformly among its steps."""

    seed: int = 0
    """Seed of the episodes and of the draws of states."""


class _Task(NamedTuple):
    algorithm: str
    regime: str
    game: str
    seed: int
    run: Path
    starts: tuple[str, ...]


def evaluate_suite_command(arguments: Sequence[str]) -> int:
    """Evaluates the runs in turn."""
    given = parse(SuiteArguments, arguments, prog="retrax evaluate-suite")
    if given.output.exists():
        raise ValueError(f"--output {given.output} exists already: choose another.")
    tasks = _tasks(given)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    with given.output.open("w", newline="", encoding="utf-8", buffering=1) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for number, task in enumerate(tasks, start=1):
            score = evaluate(
                task.run, episodes=given.episodes, seed=given.seed, starts=task.starts
            ).mean_return
            writer.writerow([*task[:4], f"{score:.10g}"])
            tell(f"{number} of {len(tasks)}: {task.game}, seed {task.seed}: {score:.6g}")
    print(given.output)
    return 0


def record_states_command(arguments: Sequence[str]) -> int:
    """Records states and writes them to a file."""
    given = parse(RecordArguments, arguments, prog="retrax record-states")
    check_states_path(given.output)
    config = read_config(given.run)
    game, switches = emulated_game(config.environment)
    switches["max_frames"] = FRAME_SKIP * given.steps
    seed = derive_seed(config.seed, Purpose.RECORDING, given.seed)
    with contextlib.closing(EmulatedAtari(game, seed=seed, **switches)) as environment:
        recorder: Any = StateRecorder(environment, np.random.default_rng(seed))
        trained, key = load_for(config, given.run, environment.spec), jax.random.key(seed)
        run_episodes(trained.agent, trained.params, recorder, key=key, num_episodes=given.states)
    starts = StartStates(game, recorder.states)
    save_states(given.output, starts)
    print(f"{len(starts.states)} states of {starts.game} in {given.output}")
    return 0


def _tasks(given: SuiteArguments) -> list[_Task]:
    """The evaluations to do. Everything is checked before the first episode."""
    wanted = None if given.games is None else {game_slug(game) for game in given.games}
    tasks: dict[tuple[str, str, int], _Task] = {}
    for run in given.runs:
        task = _task(run, given)
        if wanted is not None and task.game not in wanted:
            continue
        earlier = tasks.setdefault((task.algorithm, task.game, task.seed), task)
        if earlier is not task:
            raise ValueError(
                f"{earlier.run} and {run} are both of {task.game} with seed {task.seed}."
            )
    missing = (wanted or set()) - {task.game for task in tasks.values()}
    if missing or not tasks:
        raise ValueError(f"There is no run of {', '.join(sorted(missing)) or 'any game'}.")
    return list(tasks.values())


def _task(run: Path, given: SuiteArguments) -> _Task:
    config = read_config(run)
    try:
        game = game_slug(split(config.environment)[0])
    except ValueError as error:
        raise ValueError(f"{run}: {error}.") from None
    Snapshots(run).find()
    starts = given.starts
    if starts[:1] == ("states",) and len(starts) == 2:
        path = Path(starts[1]) / f"{game}.npz"
        states_of(emulated_game(config.environment)[0], path)
        starts = ("states", str(path))
    elif starts != ("noop",):
        raise ValueError(f"--starts must be noop or states FOLDER, got {' '.join(starts)!r}.")
    algorithm = given.algorithm or f"own-{config.entry.name}"
    return _Task(algorithm, starts[0], game, config.seed, run, starts)
