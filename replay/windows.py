"""Arithmetic of sequences in rings of rows: where they begin, which rows they have, when they end.

`E` denotes the environments, `C` the rows of an environment's ring, `L` its slots, `P` the period
and `T + 1` the rows of a sequence. All positions are counted from an environment's very first row,
and its head is the position of the next row. Integers may be NumPy's or JAX's: the functions use
operators alone.
"""

from typing import Any, NamedTuple

import numpy as np

from ..datatypes import ReplayConfig, SequenceSpec
from .selectors import slots_per_environment


class Windows(NamedTuple):
    """Sequences as windows over the rings of rows.

    A sequence can start at every P-th row. The start k P of environment e has slot e L + k mod L.
    Where sequences must not cross episodes, an episode begins at a multiple of P, and its end
    completes the sequences that reach it.
    """

    length: int  # T + 1
    period: int  # P
    before: int  # rows that a sequence needs before its first one, for stacks of frames
    num_rows: int = 0  # C, a multiple of P; 0 where there are no rings
    num_slots: int = 0  # L, at least C / P

    @classmethod
    def of(cls, sequence: SequenceSpec, config: ReplayConfig, num_envs: int) -> "Windows":
        """The windows of a replay of E environments.

        ValueError if the capacity is too small, or if `on_policy` where sequences end in episodes.
        """
        if config.on_policy and not sequence.crosses_episodes:
            raise ValueError("on_policy must be False where sequences end with episodes, got True.")
        config, period = config.for_environments(num_envs), sequence.period
        needed = (before := sequence.frame_stack - 1) + sequence.length
        rows = config.capacity // num_envs // period * period
        least = max(-(-x // period) * period for x in (needed, -(-config.min_rows // num_envs)))
        if rows < least:
            raise ValueError(
                f"A replay capacity of {config.capacity} rows over {num_envs} environments keeps "
                f"{rows} rows each, but a sequence needs {needed}, and min_rows {config.min_rows} "
                f"in all: at least {least} rows each, {num_envs * least} in all, are needed."
            )
        slots = slots_per_environment(config.selector, rows // period)
        return cls(sequence.length, period, before, rows, slots)

    def slots(self, environments: Any, starts: Any) -> Any:
        """The slots of the sequences that begin at `starts`."""
        return environments * self.num_slots + starts // self.period % self.num_slots

    def locate(self, slots: Any, heads: Any) -> tuple[Any, Any]:
        """Environments and starts of present slots `[B]`; heads `[E]`. The inverse of `slots`."""
        environments, position = divmod(slots, self.num_slots)
        newest = heads[environments] - 1
        lap = self.num_slots * self.period
        return environments, newest - (newest - position * self.period) % lap

    def positions(self, environments: Any, rows: Any) -> Any:
        """Indices of rows in all rings, put one behind the other."""
        return environments * self.num_rows + rows % self.num_rows

    def rows(self, starts: Any) -> Any:
        """Indices in the ring of the rows of sequences, those before them too: `[B, k + T]`."""
        return (starts[:, None] + np.arange(-self.before, self.length)) % self.num_rows

    def completed(self, heads: Any, episodes: Any) -> tuple[Any, Any]:
        """The starts of the sequences that the newest rows complete, and which of them exist.

        Heads `[...]` are behind these rows; the running episodes `[...]` began at `episodes`, or 0.
        """
        starts = heads - self.length
        return starts, (starts >= episodes) & (starts % self.period == 0)

    def ended(self, heads: Any, episodes: Any) -> tuple[Any, Any]:
        """As `completed`: the shorter sequences that the end of an episode completes, `[..., m]`.

        A sequence needs one transition.
        """
        first = heads - self.length + 1
        first = first + -first % self.period
        at_most = -(-(self.length - 2) // self.period)
        starts = first[..., None] + self.period * np.arange(at_most)
        return starts, (starts >= episodes[..., None]) & (starts < heads[..., None] - 1)

    def next_episodes(self, heads: Any) -> Any:
        """Where the next episodes begin, if sequences must not cross them."""
        return heads + -heads % self.period

    def overwritten(self, heads: Any) -> tuple[Any, Any]:
        """As `completed`: sequences `[..., k]` that the next rows overwrite, frames included."""
        starts = heads[..., None] - self.num_rows + np.arange(self.before + 1)
        return starts, starts % self.period == 0

    def newest(self, heads: Any) -> Any:
        """The starts of the newest complete sequences, where they may cross episodes."""
        starts = heads - self.length
        return starts - starts % self.period
