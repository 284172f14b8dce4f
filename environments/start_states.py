"""Files of emulator states: Atari episodes start there, in place of unpublished human starts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def save_states(path: Path, game: str, states: Sequence[bytes]) -> None:
    """Writes states of a game (ale-py's name): NumPy's .npz, the same bytes for the same states."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lengths, joined = [len(state) for state in states], np.frombuffer(b"".join(states), np.uint8)
    with path.open("wb") as file:  # whatever its name
        np.savez_compressed(file, game=np.array(game), lengths=np.array(lengths), states=joined)


def load_states(path: Path) -> tuple[str, list[bytes]]:
    """The game and the states in a file; `EmulatedAtari` checks whether it can begin in them."""
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
    return game, [states[end - length : end] for end, length in zip(ends, lengths, strict=True)]
