"""How the episodes of an evaluation begin: `noop`, or `states FILE`."""

from collections.abc import Sequence
from pathlib import Path

from ..datatypes import VectorEnvironment
from ..environments.start_states import StartStates, load_states
from ..runtime.run_config import RunConfig


def make_with_starts(
    config: RunConfig, starts: Sequence[str], *, seed: int, num_envs: int, render: bool = False
) -> VectorEnvironment:
    """Makes the environments of an evaluation, without switches that are for training only.

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
        return config.make_environment(seed=seed, num_envs=num_envs, render=render, evaluation=True)
    if kind != "states" or len(rest) != 1:
        raise ValueError(f"--starts must be noop or states FILE, got {' '.join(starts)!r}.")
    from ..environments.atari_factory import EmulatedAtari, emulated_game

    game, switches = emulated_game(config.environment)
    found = states_of(game, Path(rest[0]))
    return EmulatedAtari(game, num_envs=num_envs, seed=seed, states=found.states, **switches)


def states_of(game: str, path: Path) -> StartStates:
    """The states in a file, which must be of a game.

    Raises:
      ValueError: the file is damaged or of another game.
    """
    found = load_states(path)
    if found.game != game:
        raise ValueError(f"{path} has start states of {found.game}, not of {game}.")
    return found
