"""The replay of one process: each row is kept once, sequences are windows over the rows.

`E` denotes the number of environments, `C` the rows kept for each, `P` the period, `B` the batch
and `T + 1` the rows of a sequence. All arrays are NumPy arrays on the host.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..basics.machine import check_memory
from ..datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from .interface import Draw, ReplayStatus, Writer
from .packing import PackedDraw, SequencePacking
from .rows import check_stored_as, sample_shapes, stored_as
from .schedule import UpdateSchedule, generator_state, set_generator_state
from .selectors import TreeSelector, importance_weights
from .windows import Windows


class LocalReplay:
    """A `Replay` whose rows are added by method calls, in the learner's thread or another one.

    Packed rows lie in one preallocated ring per environment, sequences are overlapping `Windows`. A
    slot of the selector is present while its sequence is complete and none of its rows has been
    overwritten. Where sequences must not cross episodes, those that reach an episode's end are
    padded with zeros and masked. Extras of sequences' first rows are kept at every P-th position.

    Keys are slots, the starts of their sequences and their ages, int64 `[3, B]`: a slot that has
    been overwritten has another start, and its priorities are ignored.

    Attributes:
      num_envs: E.
      capacity, nbytes: see `RowStore`.
      packing: of the rows.
      shapes: see `Replay.shapes`.
      schedule: of the updates.
      rng: of the draws.
    """

    metric_names: tuple[str, ...] = ("replay_age",)

    def __init__(
        self,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        config: ReplayConfig,
        *,
        num_envs: int,
        seed: int,
    ):
        """Makes empty rings for E >= 1 environments, all actors together.

        ValueError if the capacity is too small for one sequence per environment or for `min_rows`,
        or larger than the memory that is available.
        """
        self._sequence, self._config = sequence, config
        self._windows = Windows.of(sequence, config, num_envs)
        self.packing = SequencePacking(environment_spec, sequence)
        self.num_envs, self.capacity = num_envs, num_envs * self._windows.num_rows
        # The rings of a part are one array, with a row at each or at every P-th position.
        self._periods = (1, sequence.period)[: len(self.packing.parts)]
        sizes = [part.dtype.itemsize for part in self.packing.parts]
        shapes = [(self.capacity // p, n) for p, n in zip(self._periods, sizes, strict=True)]
        self.nbytes = sum(map(math.prod, shapes))
        check_memory(f"A replay of {self.capacity} rows", self.nbytes, self.capacity)
        self._rings = [np.zeros(shape, np.uint8) for shape in shapes]
        self._is_last = self.packing.flags(self._rings[0])[1]
        self._selector = TreeSelector(config, num_envs * self._windows.num_slots)
        self.shapes = sample_shapes(environment_spec, sequence, config, num_envs=num_envs)
        self._heads = np.zeros(num_envs, np.int64)  # rows ever written, skipped ones included
        self._episodes = np.zeros(num_envs, np.int64)  # the head at which the episode began, or 0
        self.rng = np.random.default_rng(seed)
        self.schedule = UpdateSchedule(config, num_envs=num_envs, seed=seed)
        self._lock = threading.Lock()

    @property
    def num_rows(self) -> int:
        """Rows that are kept now."""
        return int(np.minimum(self._heads, self._windows.num_rows).sum())

    @property
    def num_sequences(self) -> int:
        """Sequences that can be drawn now."""
        return len(self._selector)

    def add(self, rows: Row, environments: np.ndarray | None = None) -> None:
        """Appends one row to every environment, or to some: distinct integers `[n]`, 0 .. E - 1.

        Rows are arrays `[n, ...]`, all extras included; ValueError if they are not as specified.
        """
        self.add_packed(self.packing.pack(rows), environments)

    def add_packed(self, packed: Sequence[np.ndarray], environments: np.ndarray | None) -> None:
        """`add` of packed rows: the parts `[n, bytes]`."""
        is_last = self.packing.flags(packed[0])[1]
        with self._lock:
            self._append(packed, environments)
            self._observe(len(is_last) - int(np.count_nonzero(is_last)))

    def cut(self, environment: int | None = None) -> None:
        """Ends the running episode of every environment, or of one, as a time limit would.

        Required when the next row is not the successor of the newest one, as after a restore.
        """
        candidates = np.arange(self.num_envs) if environment is None else np.array([environment])
        with self._lock:
            environments = candidates[self._heads[candidates] != self._episodes[candidates]]
            newest = self._windows.positions(environments, self._heads[environments] - 1)
            running = ~self._is_last[newest]
            self._is_last[newest] = True
            self._end_episodes(environments[running])

    def rounds(self, coming: Sequence[int] | np.ndarray = ()) -> int:
        """Sequences that every environment has ever completed, with the rows that are `coming`."""
        heads = self._heads.copy()
        heads[list(coming)] += 1
        complete = (heads - self._sequence.length) // self._sequence.period + 1
        return int(np.maximum(complete, 0).min())

    def writer(self, environments: Sequence[int]) -> Writer:
        """A writer for some environments, which adds rows immediately."""
        return _LocalWriter(self, np.array(environments, np.int64))

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """Draws if a call is due; never waits."""
        draw = self.draw()
        return None if draw is None else Draw(draw.keys, self.packing.sample(draw), draw.updates)

    def draw(self) -> PackedDraw | None:
        """`sample`, packed."""
        with self._lock:
            kind = self.schedule.due
            if kind is None:
                return None
            draw = self.draw_now(newest=kind == "newest")
            draw.header[1:3] = self.schedule.done(), kind == "newest"
            return draw

    def draw_now(self, *, newest: bool = False) -> PackedDraw:
        """Draws the sequences of one call of updates, whether or not one is due.

        B is the config's `draw_size`; E for the newest complete sequence of every environment.
        ValueError if there is no such sequence yet.
        """
        if newest:
            if not self.rounds():
                raise ValueError("Not every environment has a complete sequence yet.")
            starts = self._windows.newest(self._heads)
            slots = self._windows.slots(np.arange(self.num_envs), starts)
            return self._packed(slots, np.ones(self.num_envs))
        slots, probabilities = self._selector.sample(self.rng, self._config.draw_size)
        beta = self._config.importance_exponent
        return self._packed(slots, importance_weights(probabilities, self.num_sequences, beta))

    def undo(self, draws: Sequence[tuple[PackedDraw, Any]]) -> None:
        """Rolls the newest draws back: in their order, each with the state of `rng` before it."""
        with self._lock:
            for draw, rng in reversed(draws):
                self.schedule.undo(draw.updates, newest=draw.newest)
                self.rng.bit_generator.state = rng

    def owe(self, updates: int) -> None:
        """Makes updates due again that were lost, as many of them as were made."""
        with self._lock:
            self.schedule.undo(min(updates, self.schedule.updates), newest=False)

    def read(self, slots: np.ndarray) -> tuple[Row, np.ndarray]:
        """The sequences of present slots `[B]`, and their mask; see `SequencePacking.unpack`."""
        return self.packing.unpack(self._packed(slots, np.ones(len(slots))).parts)

    def starts(self, slots: np.ndarray) -> np.ndarray:
        """Where slots' sequences begin, counted from their environments' very first row, or -1."""
        starts = self._windows.locate(slots, self._heads)[1]
        return np.where(self._selector.are_present(slots), starts, -1)

    def set_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sets the priorities of slots that still hold the same sequences."""
        slots, starts = keys[:2]
        with self._lock:
            self._selector.set_priorities(slots, priorities, self.starts(slots) == starts)

    @staticmethod
    def metrics(keys: np.ndarray) -> dict[str, float]:
        """`replay_age`: mean time steps since the sequences' first rows, when they were drawn."""
        return {"replay_age": float(np.mean(keys[2]))}

    def status(self) -> ReplayStatus:
        """Exact counts; `new_priority` is 1, and writers ignore it."""
        steps, learning_since = self.schedule.steps, self.schedule.learning_since
        return ReplayStatus(self.num_rows, self.num_sequences, steps, learning_since, 1.0)

    def state(self) -> dict[str, Any]:
        """State for `restore`: views of the filled rings, and all else that decides draws."""
        return {
            **self._leaves(min(int(np.max(self._heads)), self._windows.num_rows)),
            **stored_as(self._sequence, self._config),
            "heads": self._heads.copy(),
            "episodes": self._episodes.copy(),
            "selector": self._selector.state(),
            "rng": generator_state(self.rng),
            "schedule": self.schedule.state(),
        }

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """See `Replay`; `cut` must follow if new episodes begin."""
        if "heads" not in state:
            raise ValueError(
                "The snapshot's rows are in a Reverb checkpoint or were kept by a replay node, but "
                "this replay keeps its own: resume with the selector, the launcher and the engine "
                "of the original run."
            )
        check_stored_as(state, self._sequence, self._config)
        self._selector.restore(state["selector"])
        for part, leaves in self._leaves(self._windows.num_rows).items():
            for name, rings in leaves.items():
                rings[:, : state[part][name].shape[1]] = state[part][name]
        self._heads[:] = state["heads"]
        self._episodes[:] = state["episodes"]
        set_generator_state(self.rng, state["rng"])
        self.schedule.restore(state["schedule"], counters)

    def close(self) -> None:
        """Does nothing: there are no threads."""

    def _append(self, packed: Sequence[np.ndarray], environments: np.ndarray | None) -> None:
        if environments is None:
            environments = np.arange(self.num_envs)
        if len(set(environments.tolist()) & set(range(self.num_envs))) != len(environments):
            raise ValueError(
                f"environments must be distinct and from 0 to {self.num_envs - 1}, got "
                f"{environments.tolist()}."
            )
        heads, windows = self._heads[environments], self._windows
        starts, are_gone = windows.overwritten(heads)
        gone = windows.slots(environments[:, None], starts)[are_gone]
        # A start without a sequence (the end of an episode) has no slot.
        gone = gone[self._selector.are_present(gone)]
        if gone.size:
            self._selector.remove(gone)
        position = windows.positions(environments, heads)
        for ring, period, part in zip(self._rings, self._periods, packed, strict=True):
            kept = position % period == 0
            ring[position[kept] // period] = part[kept]
        self._heads[environments] = heads = heads + 1
        self._insert(environments, *windows.completed(heads, self._episodes[environments]))
        self._end_episodes(environments[self.packing.flags(packed[0])[1]])

    def _insert(self, environments: np.ndarray, starts: np.ndarray, chosen: np.ndarray) -> None:
        slots = self._windows.slots(environments, starts)[chosen]
        if slots.size:
            self._selector.insert(slots)

    def _end_episodes(self, environments: np.ndarray) -> None:
        """Completes the sequences that the ends of episodes cut short; advances the heads."""
        if self._sequence.crosses_episodes or not environments.size:
            return
        heads = self._heads[environments]
        found = self._windows.ended(heads, self._episodes[environments])
        self._insert(environments[:, None], *found)
        heads = self._windows.next_episodes(heads)
        self._heads[environments] = self._episodes[environments] = heads

    def _observe(self, steps: int) -> None:
        """Tells the schedule of new rows, with so many further steps."""
        self.schedule.observe(
            steps=self.schedule.steps + steps,
            rows=self.num_rows,
            sequences=self.num_sequences,
            rounds=self.rounds(),
        )

    def _packed(self, slots: np.ndarray, weights: np.ndarray) -> PackedDraw:
        """Copies the sequences of present slots `[B]`, zeros where the mask is False."""
        draw, windows, packing = self.packing.empty_draw(len(slots)), self._windows, self.packing
        environments, starts = windows.locate(slots, self._heads)
        draw.keys[:2] = slots, starts
        # The age in time steps of all E environments: E for each later row of the sequence's.
        draw.keys[2] = (self._heads[environments] - 1 - starts) * self.num_envs
        draw.weights[:] = weights
        rows = windows.positions(environments[:, None], windows.rows(starts))
        index = rows, windows.positions(environments, starts) // self._sequence.period
        for ring, i, part in zip(self._rings, index, draw.parts, strict=False):
            np.take(ring, i, axis=0, out=part, mode="clip")  # "raise" copies twice
        if not self._sequence.crosses_episodes:
            draw.parts[0][:, packing.before :][~packing.mask(draw.parts[0])] = 0
        return draw

    def _leaves(self, filled: int) -> dict[str, dict[str, np.ndarray]]:
        """Views of the first `filled` rows of all rings, by part and leaf."""
        parts: dict[str, dict[str, np.ndarray]] = {"rows": {}, "first": {}}
        for found, packing, ring, period in zip(
            parts.values(), self.packing.parts, self._rings, self._periods, strict=False
        ):
            for name, leaf in packing.fields(ring).items():
                rings = leaf.reshape(self.num_envs, -1, *leaf.shape[1:])
                found[name] = rings[:, : -(-filled // period)]
        return parts


class _LocalWriter(NamedTuple):
    replay: LocalReplay
    environments: np.ndarray

    def write(self, rows: Row, new_priority: float = 1.0) -> None:
        """Ignores the priority: the selector chooses it."""
        self.replay.add(rows, self.environments)

    def close(self) -> None:
        pass


def check_capacity(*arguments: Any, num_envs: int) -> None:
    """Refuses what `LocalReplay` refuses; rings that are not touched take no memory."""
    LocalReplay(*arguments, num_envs=num_envs, seed=0)
