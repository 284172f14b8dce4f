"""The replay buffer of one process: each row is kept once, sequences are windows over the rows.

`E` denotes the number of environments, `C` the rows kept for each, `P` the period, `B` the batch
and `T + 1` the rows of a sequence. All arrays are NumPy arrays on the host.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec
from .packing import SequencePacking
from .rings import RowRings, rows_per_environment
from .rows import sample_shapes
from .schedule import generator_state, set_generator_state
from .selectors import importance_weights, make_selector, slots_per_environment


class SequenceStore:
    """Rows in one ring per environment, preallocated; overlapping sequences as windows.

    A sequence can start at every P-th row. The start at row k P of environment e, counted from its
    very first row, is the selector's slot e L + k mod L, so slots of one environment are in time
    order. L is C / P, or more where the selector needs it (`slots_per_environment`). A slot is
    present while its sequence is complete and none of its rows has been overwritten. Where
    sequences must not cross episodes, an episode begins at a multiple of P, and its end completes
    the sequences that reach it; they are padded with zeros and masked.

    Rows must be added in the time order of each environment.

    Attributes:
      num_envs: E.
      capacity: the maximal number of rows, over all environments.
      nbytes: of all rings when they are full.
      packing: of the rows.
      shapes: of what `sample` returns, as `jax.ShapeDtypeStruct`s; see `Replay.shapes`.
      rng: of the draws.

    Args:
      environment_spec: of one environment.
      sequence: length, period and extras of the sequences.
      config: capacity, selection, batch size.
      num_envs: E >= 1, those of all actors together.
      seed: of the draws.

    Raises:
      ValueError: the capacity is too small for one sequence per environment or for `min_rows`, or
        larger than the memory that is available.
    """

    def __init__(
        self,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        config: ReplayConfig,
        *,
        num_envs: int,
        seed: int,
    ):
        self._sequence, self._config = sequence, config
        self._num_rows = rows_per_environment(sequence, config, num_envs)
        self._num_slots = slots_per_environment(config.selector, self._num_rows // sequence.period)
        self.packing = SequencePacking(environment_spec, sequence)
        self._rings = RowRings(self.packing, num_envs=num_envs, num_rows=self._num_rows)
        self._selector = make_selector(
            config.selector,
            num_envs * self._num_slots,
            priority_exponent=config.priority_exponent,
            uniform_fraction=config.uniform_fraction,
        )
        self.shapes = sample_shapes(environment_spec, sequence, config, num_envs=num_envs)
        self.rng = np.random.default_rng(seed)
        self.num_envs, self.capacity = num_envs, num_envs * self._num_rows
        self.nbytes = self._rings.nbytes
        self._heads = np.zeros(num_envs, np.int64)  # rows ever written, skipped ones included
        self._episodes = np.zeros(num_envs, np.int64)  # the head at which the episode began

    @property
    def num_rows(self) -> int:
        """Rows that are kept now, over all environments."""
        return int(np.minimum(self._heads, self._num_rows).sum())

    @property
    def num_sequences(self) -> int:
        """Sequences that can be drawn now."""
        return len(self._selector)

    def add(self, rows: Row, environments: np.ndarray | None = None) -> None:
        """Appends one row to every environment, or to some.

        Args:
          rows: arrays `[n, ...]`, all extras included.
          environments: integers `[n]`, distinct; None for all E in order.

        Raises:
          ValueError: environments are not distinct or not in 0 .. E - 1, or rows not as specified.
        """
        every = np.arange(self.num_envs)
        self.add_packed(self.packing.pack(rows), every if environments is None else environments)

    def add_packed(self, packed: Sequence[np.ndarray], environments: np.ndarray) -> None:
        """Appends one row to some environments: packed, the parts `[n, bytes]`."""
        if len(set(environments.tolist()) & set(range(self.num_envs))) != len(environments):
            raise ValueError(
                f"environments must be distinct and from 0 to {self.num_envs - 1}, got "
                f"{environments.tolist()}."
            )
        index = self._heads[environments] % self._num_rows
        self._remove(environments)
        self._rings.write(environments, index, packed)
        self._heads[environments] += 1
        slots = self._complete(environments, self.packing.flags(packed[0])[1])
        if slots.size:
            self._selector.insert(slots)

    def cut(self, environment: int | None = None) -> None:
        """Ends the current episode of every environment, or of one, as a time limit would.

        Required when environments are reset out of turn, as after a restore: the next row is then
        not the successor of the newest one.
        """
        candidates = np.arange(self.num_envs) if environment is None else np.array([environment])
        environments = candidates[self._heads[candidates] != self._episodes[candidates]]
        if not environments.size:
            return
        newest = (self._heads[environments] - 1) % self._num_rows
        running = self._rings.end_episodes(environments, newest)
        if not self._sequence.crosses_episodes:
            self._selector.insert(self._end_episodes(environments[running]))

    def rounds(self, coming: Sequence[int] | np.ndarray = ()) -> int:
        """Sequences that every environment has completed, where they may cross episodes.

        Overwritten ones are included, and those that one more row completes, if some are coming.
        """
        heads = self._heads.copy()
        heads[list(coming)] += 1
        complete = (heads - self._sequence.length) // self._sequence.period + 1
        return int(np.maximum(complete, 0).min())

    def draw(self, *, newest: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Draws the sequences of one call of updates: slots `[B]` and weights, float32 `[B]`.

        B is the config's `draw_size`; E for the newest complete sequence of every environment.

        Raises:
          ValueError: there is no such sequence yet; or sequences end with episodes, if `newest`.
        """
        if newest:
            slots = self._newest()
            return slots, np.ones(slots.shape, np.float32)
        slots, probabilities = self._selector.sample(self.rng, self._config.draw_size)
        weights = importance_weights(
            probabilities, self.num_sequences, self._config.importance_exponent
        )
        return slots, weights.astype(np.float32)

    def sample(self, *, newest: bool = False) -> tuple[np.ndarray, Sample]:
        """Draws as `draw`: slots `[B]`, and their sequences."""
        slots, weights = self.draw(newest=newest)
        rows, mask = self.read(slots)
        return slots, Sample(rows, weights, mask)

    def read(self, slots: np.ndarray) -> tuple[Row, np.ndarray]:
        """The sequences of present slots `[B]`: a `Row` of arrays, and the mask `[B, T+1]`.

        Arrays of the `Row` are `[B, T+1, ...]`; extras of the first row alone are `[B, ...]`.
        """
        packed = [np.empty(shape, np.uint8) for shape in self.packing.shapes(len(slots))]
        self.take(slots, packed)
        return self.packing.unpack(packed)

    def take(self, slots: np.ndarray, out: Sequence[np.ndarray]) -> None:
        """Copies the packed sequences of present slots `[B]` into parts `[B, ...]`."""
        environments, starts = self._locate(slots)
        self._rings.take(environments, starts % self._num_rows, out)

    def starts(self, slots: np.ndarray) -> np.ndarray:
        """The row at which each slot's sequence begins, counted from its environment's very first.

        int64 `[B]`, -1 where there is no sequence. It changes when the slot is overwritten.
        """
        return np.where(self._selector.are_present(slots), self._locate(slots)[1], -1)

    def ages(self, slots: np.ndarray) -> np.ndarray:
        """Time steps since the first row of each present slot's sequence was added: int64 `[B]`.

        Those of all E environments: E for each later row of the sequence's environment.
        """
        environments, first = self._locate(slots)
        return (self._heads[environments] - 1 - first) * self.num_envs

    def set_priorities(
        self, slots: np.ndarray, priorities: np.ndarray, starts: np.ndarray | None = None
    ) -> None:
        """Sets priorities `[B]` of slots `[B]`: all, or those that still begin at `starts`."""
        kept = None if starts is None else self.starts(slots) == starts
        self._selector.set_priorities(slots, priorities, kept)

    def state(self) -> dict[str, Any]:
        """State for `restore`, a pytree of arrays: the filled part of the rings, and the draws."""
        filled = int(min(self._heads.max(), self._num_rows))
        return {
            **self._rings.state(filled),
            "heads": self._heads.copy(),
            "episodes": self._episodes.copy(),
            "selector": self._selector.state(),
            "rng": generator_state(self.rng),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the `state` of a store that was made with the same arguments."""
        self._selector.restore(state["selector"])
        self._rings.restore(state)
        self._heads[:] = state["heads"]
        self._episodes[:] = state["episodes"]
        set_generator_state(self.rng, state["rng"])

    def _newest(self) -> np.ndarray:
        if not self._sequence.crosses_episodes:
            raise ValueError("Only sequences that cross episodes have a newest one everywhere.")
        if not self.rounds():
            raise ValueError("Not every environment has a complete sequence yet.")
        starts = self._heads - self._sequence.length
        starts -= starts % self._sequence.period
        return self._slots(np.arange(self.num_envs), starts)

    def _complete(self, environments: np.ndarray, is_last: np.ndarray) -> np.ndarray:
        """Slots of the sequences that the newest rows complete; is_last `[n]` of these rows."""
        starts = self._heads[environments] - self._sequence.length
        earliest = 0 if self._sequence.crosses_episodes else self._episodes[environments]
        full = (starts >= earliest) & (starts % self._sequence.period == 0)
        slots = self._slots(environments[full], starts[full])
        if self._sequence.crosses_episodes or not is_last.any():
            return slots
        return np.concatenate([slots, self._end_episodes(environments[is_last])])

    def _end_episodes(self, environments: np.ndarray) -> np.ndarray:
        """Slots of the sequences that the end of an episode completes; advances the heads."""
        period, slots = self._sequence.period, []
        for environment in environments:
            head = self._heads[environment]
            # A start needs one transition; starts at least `length` rows back are complete already.
            earliest = max(self._episodes[environment], head - self._sequence.length + 1)
            starts = np.arange(-(-earliest // period) * period, head - 1, period)
            slots.append(self._slots(environment, starts))
            self._heads[environment] = self._episodes[environment] = -(-head // period) * period
        return np.concatenate(slots) if slots else np.empty(0, np.int64)

    def _slots(self, environments: Any, starts: np.ndarray) -> np.ndarray:
        return environments * self._num_slots + starts // self._sequence.period % self._num_slots

    def _locate(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of `_slots` for present slots: environments and starts."""
        environments, position = np.divmod(np.asarray(slots), self._num_slots)
        newest = self._heads[environments] - 1
        period = self._sequence.period
        return environments, newest - (newest - position * period) % (self._num_slots * period)

    def _remove(self, environments: np.ndarray) -> None:
        """Removes the sequences that need the rows which the next ones overwrite.

        They begin there; or up to k - 1 rows later, if their first row shows a stack of k frames.
        """
        frame_stack = self._sequence.frame_stack
        rows = (self._heads[environments, None] - self._num_rows + np.arange(frame_stack)).ravel()
        environments = np.repeat(environments, frame_stack)
        starts = rows % self._sequence.period == 0
        slots = self._slots(environments[starts], rows[starts])
        # A start without a sequence (the end of an episode) has no slot.
        slots = slots[self._selector.are_present(slots)]
        if slots.size:
            self._selector.remove(slots)
