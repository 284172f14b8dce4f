"""How the episodes of an evaluation begin: `noop`, or `states FILE`."""

from collections.abc import Sequence
from pathlib import Path

from ..datatypes import VectorEnvironment
from ..environments.start_states import StartStates, load_states
from ..runtime.run_directory import RunConfig


def make_with_starts(
    config: RunConfig, starts: Sequence[str], *, seed: int, num_envs: int, render: bool = False
) -> VectorEnvironment:
    """Makes the environments of an evaluation.

    Args:
      config: of the run.
      starts: `["noop"]`, or `["states", FILE]` for Atari games.
      seed: as for `make`.
      num_envs: as for `make`.
      render: as for `make`.

    Raises:
      ValueError: `make` refuses the environment, other starts, or a file that is not of this game.
    """
    kind, *rest = starts or [""]
    if kind == "noop" and not rest:
        return config.make_environment(seed=seed, num_envs=num_envs, render=render)
    if kind != "states" or len(rest) != 1:
        raise ValueError(f"--starts must be noop or states FILE, got {' '.join(starts)!r}.")
    from ..environments.emulated_atari import EmulatedAtari

    found = states_of(config.environment, Path(rest[0]))
    return EmulatedAtari(found.game, num_envs=num_envs, seed=seed, states=found.states)


def states_of(environment: str, path: Path) -> StartStates:
    """The states in a file, which must be of this environment's game.

    Raises:
      ValueError: the environment is no Atari game, or the file is damaged or of another game.
    """
    game, found = atari_game(environment), load_states(path)
    if found.game != game:
        raise ValueError(f"{path} has start states of {found.game}, not of {game}.")
    return found


def atari_game(environment: str) -> str:
    """ale-py's name of the game that an id stands for.

    Raises:
      ValueError: it is no Atari game: only those have start states.
    """
    from ..environments.atari import games

    if environment not in games():
        raise ValueError(f"Start states are for Atari games (ALE/...), not for {environment!r}.")
    return games()[environment]
