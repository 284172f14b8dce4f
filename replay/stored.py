"""How the rows in a snapshot are cut into sequences and selected: another config is refused.

Rows look the same whatever the length of the sequences, and priorities whatever the selector.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..datatypes import ReplayConfig, SequenceSpec

_KEY = "stored_as"
_SEQUENCE = ("length", "period", "crosses_episodes", "frame_stack")


def stored_as(sequence: SequenceSpec, config: ReplayConfig) -> dict[str, dict[str, np.ndarray]]:
    """The part of a replay's state that `check_stored_as` reads: a pytree of arrays."""
    numbers = {name: np.array(int(getattr(sequence, name))) for name in _SEQUENCE}
    return {_KEY: {**numbers, "selector": np.frombuffer(config.selector.encode(), np.uint8)}}


def check_stored_as(state: Mapping[str, Any], sequence: SequenceSpec, config: ReplayConfig) -> None:
    """Refuses the state of a replay with other sequences or another selector.

    Raises:
      ValueError: names what differs, stored and wanted.
    """
    found, wanted = state[_KEY], stored_as(sequence, config)[_KEY]
    differing = [name for name in wanted if not np.array_equal(found[name], wanted[name])]
    if differing:
        stored = ", ".join(f"{name} {_text(found[name])}" for name in differing)
        given = ", ".join(_text(wanted[name]) for name in differing)
        raise ValueError(f"the stored rows have {stored}, and the config has {given}")


def _text(value: Any) -> str:
    value = np.asarray(value)
    return value.tobytes().decode(errors="replace") if value.ndim else str(value.item())
