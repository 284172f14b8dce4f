"""Files of emulator states: Atari episodes start there, in place of unpublished human starts."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np


class StartStates(NamedTuple):
    """States of a game (ale-py's name), as `EmulatedAtari.emulator_state` gave them."""

    game: str
    states: Sequence[bytes]


def save_states(path: Path, starts: StartStates) -> None:
    """Writes a file that `load_states` reads: NumPy's .npz, the same bytes for the same states."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lengths = np.array([len(state) for state in starts.states], np.int64)
    states = np.frombuffer(b"".join(starts.states), np.uint8)
    with path.open("wb") as file:  # whatever its name
        np.savez_compressed(file, game=np.array(starts.game), lengths=lengths, states=states)


def load_states(path: Path) -> StartStates:
    """Reads what `save_states` wrote. The states are not checked; `EmulatedAtari` does it."""
    if not path.is_file():
        raise ValueError(f"{path} is not a file of start states: retrax record-states makes one.")
    try:
        # NumPy leaves a file open that it opened itself and cannot read.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            game, lengths, states = str(file["game"]), file["lengths"], file["states"].tobytes()
    except Exception as error:  # zipfile, zlib and NumPy have many for damaged files
        raise ValueError(f"{path} is damaged, or not a file of start states ({error}).") from None
    ends = np.cumsum(lengths)
    if len(lengths) == 0 or (lengths <= 0).any() or ends[-1] != len(states):
        raise ValueError(f"{path} is damaged: the lengths of its states do not match its contents.")
    pieces = [states[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    return StartStates(game, pieces)
