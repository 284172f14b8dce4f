"""Checks of slots `0 .. capacity - 1`, for what keeps priorities of slots.

`n` denotes the length of a batch of slots.
"""

import operator
from collections.abc import Mapping

import numpy as np


class SlotChecks:
    """Checks arguments; every ValueError names what was given."""

    def __init__(self, capacity: int) -> None:
        """Takes the number of slots, at least 1."""
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 slot, got {capacity}.")
        self.capacity = operator.index(capacity)
        self._stamp = np.zeros(self.capacity, np.int64)  # room for `last`

    def check(self, slots: np.ndarray) -> np.ndarray:
        """Slots as int64 `[n]`.

        Raises:
          ValueError: they are no integers `[n]` in [0, capacity).
        """
        slots = np.asarray(slots)
        if slots.dtype.kind not in "iu" or slots.ndim != 1:
            raise ValueError(
                "slots must be integers of shape [n], got "
                f"{slots.dtype} of shape {list(slots.shape)}."
            )
        if slots.size and (slots.min() < 0 or slots.max() >= self.capacity):
            wrong = slots[(slots < 0) | (slots >= self.capacity)][0]
            raise ValueError(f"slots must be from 0 to {self.capacity - 1}, got {wrong}.")
        return slots.astype(np.int64, copy=False)

    def check_present(self, slots: np.ndarray, present: np.ndarray) -> None:
        """Refuses slots `[n]` of which one is not present, bool `[n]`."""
        if not present.all():
            raise ValueError(f"slots must be present (inserted), {slots[~present][0]} is not.")

    def check_distinct(self, slots: np.ndarray) -> None:
        """Refuses slots `[n]` of which two are equal."""
        last = self.last(slots)
        if not last.all():
            raise ValueError(f"slots to remove must be distinct, got {slots[~last][0]} twice.")

    def check_draw(self, n: int, num_present: int) -> None:
        """Refuses fewer than one draw, and draws from nothing."""
        if n < 1:
            raise ValueError(f"n must be at least 1 draw, got {n}.")
        if not num_present:
            raise ValueError("an empty tree has nothing to sample: insert slots first, got none.")

    def check_state(self, state: Mapping[str, np.ndarray], dtypes: Mapping[str, type]) -> None:
        """Refuses a state without an array `[capacity]` of each name and dtype."""
        for name, dtype in dtypes.items():
            found = np.asarray(state.get(name))
            if found.shape != (self.capacity,) or found.dtype != dtype:
                raise ValueError(
                    f"state[{name!r}] must be {np.dtype(dtype)} of shape ({self.capacity},), got "
                    f"{found.dtype} of shape {found.shape}."
                )

    def last(self, slots: np.ndarray) -> np.ndarray:
        """Which entries are the last (or only) ones of their slot: bool `[n]`."""
        order = np.arange(slots.size)
        self._stamp[slots] = order  # NumPy keeps the last of repeated assignments
        return self._stamp[slots] == order
