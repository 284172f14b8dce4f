"""`retrax evaluate-suite` (scores of many games) and `retrax record-states` (start states)."""

import contextlib
import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from ..basics.validation import Range
from ..environments.atari import FRAME_SKIP
from ..environments.emulated_atari import EmulatedAtari, emulated_game
from ..environments.start_states import StartStates, check_states_path, save_states
from ..environments.switches import split
from ..evaluation.atari57 import game_slug
from ..evaluation.evaluations import Evaluation, states_of
from ..evaluation.state_recorder import StateRecorder
from ..training.config_file import read_config
from ..training.seeds import Purpose, derive_seed
from ..training.snapshots import Snapshots
from .parsing import parse, parse_call, tell
from .trained import evaluate, load_for

_COLUMNS = ("algorithm", "regime", "game", "seed", "score")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteEvaluation:
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

    def evaluate(self) -> None:
        """Evaluates the runs in turn. Everything is checked before the first episode."""
        if self.output.exists():
            raise ValueError(f"--output {self.output} exists already: choose another.")
        tasks = self._tasks()
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with self.output.open("w", newline="", encoding="utf-8", buffering=1) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_COLUMNS)
            for number, (row, (run, starts)) in enumerate(tasks.items(), start=1):
                found = evaluate(run, episodes=self.episodes, seed=self.seed, starts=starts)
                writer.writerow([*row, f"{found.mean_return:.10g}"])
                _, _, game, seed = row
                tell(f"{number} of {len(tasks)}: {game}, seed {seed}: {found.mean_return:.6g}")
        print(self.output)

    def _tasks(self) -> dict[tuple[str, str, str, int], tuple[Path, tuple[str, ...]]]:
        """From the cells of a row, but for the score, to the run and its starts."""
        wanted = None if self.games is None else {game_slug(game) for game in self.games}
        tasks: dict[tuple[str, str, str, int], tuple[Path, tuple[str, ...]]] = {}
        for run in self.runs:
            config = read_config(run)
            try:
                game = game_slug(split(config.environment)[0])
            except ValueError as error:
                raise ValueError(f"{run}: {error}.") from None
            Snapshots(run).find()
            starts = self._starts_of(game, config.environment)
            if wanted is not None and game not in wanted:
                continue
            row = self.algorithm or f"own-{config.entry.name}", starts[0], game, config.seed
            if row in tasks:
                raise ValueError(
                    f"{tasks[row][0]} and {run} are both of {game} with seed {config.seed}."
                )
            tasks[row] = run, starts
        missing = (wanted or set()) - {game for _, _, game, _ in tasks}
        if missing or not tasks:
            raise ValueError(f"There is no run of {', '.join(sorted(missing)) or 'any game'}.")
        return tasks

    def _starts_of(self, game: str, environment: str) -> tuple[str, ...]:
        if self.starts[:1] == ("states",) and len(self.starts) == 2:
            path = Path(self.starts[1]) / f"{game}.npz"
            states_of(emulated_game(environment)[0], path)
            return ("states", str(path))
        if self.starts != ("noop",):
            given = " ".join(self.starts)
            raise ValueError(f"--starts must be noop or states FOLDER, got {given!r}.")
        return self.starts


def evaluate_suite_command(arguments: Sequence[str]) -> int:
    """Evaluates the runs in turn."""
    parse(SuiteEvaluation, arguments, prog="retrax evaluate-suite").evaluate()
    return 0


def record_states_command(arguments: Sequence[str]) -> int:
    """Records states and writes them to a file."""
    record_states(**parse_call(record_states, arguments, prog="retrax record-states"))
    return 0


def record_states(
    run: tyro.conf.Positional[Path],
    *,
    output: Path,
    states: Annotated[int, Range(1)] = 30,
    steps: Annotated[int, Range(1)] = 1000,
    seed: int = 0,
) -> None:
    """Record emulator states from episodes of a run's policy, as start states of later episodes.

    Args:
      run: the run directory, of an Atari game.
      output: the .npz file to write.
      states: states to record, one of each episode. Episodes begin with up to 30 no-ops.
      steps: maximum steps (of 4 frames) of an episode; the state is drawn uniformly among its
        steps.
      seed: seed of the episodes and of the draws of states.
    """
    check_states_path(output)
    config = read_config(run)
    game, switches = emulated_game(config.environment)
    switches["max_frames"] = FRAME_SKIP * steps
    seed = derive_seed(config.seed, Purpose.RECORDING, seed)
    with contextlib.closing(EmulatedAtari(game, seed=seed, **switches)) as environment:
        recorder = StateRecorder(environment.emulator_state, np.random.default_rng(seed))
        trained = load_for(config, run, environment.spec)
        evaluation = Evaluation(
            config, trained.agent, environment, seed=seed, episodes=states, before_step=recorder
        )
        evaluation.run(trained.params, None, trained.steps)
    save_states(output, StartStates(game, recorder.states))
    print(f"{states} states of {game} in {output}")
