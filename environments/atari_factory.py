"""Atari games by their ids, and the switches that reach each kind of their emulators."""

from typing import Any

from ..datatypes import VectorEnvironment
from .atari import Atari, games
from .emulated_atari import EmulatedAtari
from .switches import parameters, split, values

_GAME = frozenset({"game"})  # no switch: it follows from the id


def make_atari(
    id: str, *, num_envs: int, seed: int, render: bool, evaluation: bool, switches: dict[str, Any]
) -> VectorEnvironment:
    """Makes the environments of a game of `games()`; arguments and errors: see `make`."""
    switches = values(switches, Atari, id, hidden=_GAME, evaluation=evaluation, strict=True)
    if render and switches.keys() <= parameters(EmulatedAtari):
        return EmulatedAtari(games()[id], num_envs=num_envs, seed=seed, **switches)
    return Atari(games()[id], num_envs=num_envs, seed=seed, **switches)


def emulated_game(id: str) -> tuple[str, dict[str, Any]]:
    """The game of an id, and its switches for the emulators that begin in start states.

    Args:
      id: switches may follow it.

    Returns:
      ale-py's name of the game, and arguments of `EmulatedAtari`, without those for training only.

    Raises:
      ValueError: it is no Atari game, or has a switch that these emulators do not have.
    """
    id, named = split(id)
    if id not in games():
        raise ValueError(f"Start states are for Atari games (ALE/...), not for {id!r}.")
    switches = values(named, Atari, id, hidden=_GAME, evaluation=True, strict=True)
    switches.pop("num_threads", None)
    if not switches.get("repeat_action_probability", True):
        del switches["repeat_action_probability"]  # these emulators have no other value than 0
    return games()[id], values(switches, EmulatedAtari, f"{id} with states", hidden=_GAME)
