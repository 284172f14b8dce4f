"""The replay in the learner's own process: a `SequenceStore` with an `UpdateSchedule`."""

import contextlib
import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from .interface import Draw, ReplayStatus, Writer
from .packing import PackedDraw
from .rows import check_stored_as, stored_as
from .schedule import UpdateSchedule
from .store import SequenceStore


class LocalReplay:
    """A `Replay` whose rows are added by method calls, in the learner's thread or another one.

    `B` denotes the batch. Keys are slots, the starts of their sequences and their ages, int64
    `[3, B]`: a slot that has been overwritten has another start, and its priorities are ignored.

    Attributes:
      num_envs, capacity, nbytes, packing: see `SequenceStore`.
      store: holds the rows.
      schedule: of the updates.
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
        """Makes an empty replay; see `SequenceStore`."""
        self._sequence, self._config = sequence, config
        self.store = SequenceStore(environment_spec, sequence, config, num_envs=num_envs, seed=seed)
        self.num_envs, self.shapes = num_envs, self.store.shapes
        self.capacity, self.nbytes = self.store.capacity, self.store.nbytes
        self.packing = self.store.packing
        self.schedule = UpdateSchedule(config, num_envs=num_envs, seed=seed)
        self._lock = threading.Lock()

    @property
    def is_due(self) -> bool:
        """Whether `sample` would draw."""
        return self.schedule.due is not None

    @property
    def counters(self) -> tuple[int, int, int]:
        """Steps received, updates for which `sample` drew, and `learning_since`."""
        return self.schedule.steps, self.schedule.updates, self.schedule.learning_since

    def add(self, rows: Row, environments: np.ndarray | None = None) -> None:
        """Appends one row to every environment, or to some; see `SequenceStore.add`."""
        self.add_packed(self.packing.pack(rows), environments)

    def add_packed(self, packed: Sequence[np.ndarray], environments: np.ndarray | None) -> None:
        """`add` of packed rows: the parts `[n, bytes]`."""
        is_last = self.packing.flags(packed[0])[1]
        with self._lock:
            self.store.add_packed(packed, environments)
            self._observe(len(is_last) - int(np.count_nonzero(is_last)))

    def cut(self, environment: int | None = None) -> None:
        """Ends the running episode of every environment, or of one; see `SequenceStore.cut`."""
        with self._lock:
            self.store.cut(environment)

    def writer(self, environments: Sequence[int]) -> Writer:
        """A writer for some environments, which adds rows immediately."""
        return _LocalWriter(self, np.array(environments, np.int64))

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """Draws if a call is due; never waits."""
        del timeout
        draw = self.draw()
        return None if draw is None else Draw(draw.keys, self.packing.sample(draw), draw.updates)

    def draw(self) -> PackedDraw | None:
        """`sample`, packed."""
        with self._lock:
            kind = self.schedule.due
            if kind is None:
                return None
            draw = self.store.draw(newest=kind == "newest")
            draw.header[1:3] = self.schedule.done(), kind == "newest"
            return draw

    @property
    def rng(self) -> Any:
        """The state of the generator of draws."""
        return self.store.rng.bit_generator.state

    def undo(self, draws: Sequence[tuple[PackedDraw, Any]]) -> None:
        """Rolls the newest draws back: in their order, each with `rng` before it."""
        with self._lock:
            for draw, rng in reversed(draws):
                self.schedule.undo(draw.updates, newest=draw.newest)
                self.store.rng.bit_generator.state = rng

    @contextlib.contextmanager
    def undone(self, draws: Sequence[tuple[PackedDraw, Any]]) -> Iterator[None]:
        """In this block the draws are rolled back; nothing else may change it meanwhile."""
        schedule, rng = copy.deepcopy(self.schedule), self.rng
        self.undo(draws)
        try:
            yield
        finally:
            self.schedule, self.store.rng.bit_generator.state = schedule, rng

    def owe(self, updates: int) -> None:
        """Makes updates due again that were lost, as many of them as were made."""
        with self._lock:
            self.schedule.undo(min(updates, self.schedule.updates), newest=False)

    @staticmethod
    def metrics(keys: np.ndarray) -> dict[str, float]:
        """`replay_age`: mean time steps since the sequences' first rows, when they were drawn."""
        return {"replay_age": float(np.mean(keys[2]))}

    def set_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sets the priorities of slots that still hold the same sequences."""
        slots, starts = keys[:2]
        with self._lock:
            self.store.set_priorities(slots, priorities, starts)

    def status(self) -> ReplayStatus:
        """Exact counts; `new_priority` is 1, and writers ignore it."""
        store, schedule = self.store, self.schedule
        counts = store.num_rows, store.num_sequences, schedule.steps, schedule.learning_since
        return ReplayStatus(*counts, new_priority=1.0)

    def state(self) -> dict[str, Any]:
        """State of the store, all rows included, and of the schedule."""
        kind = stored_as(self._sequence, self._config)
        return {**self.store.state(), **kind, "schedule": self.schedule.state()}

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """See `Replay`; `cut` must follow if new episodes begin."""
        if "heads" not in state:
            raise ValueError(
                "The snapshot's rows are in a Reverb checkpoint or were kept by a replay node, but "
                "this replay keeps its own: resume with the selector, the launcher and the engine "
                "of the original run."
            )
        check_stored_as(state, self._sequence, self._config)
        self.store.restore(state)
        self.schedule.restore(state["schedule"], counters)

    def close(self) -> None:
        """Does nothing: there are no threads."""

    def _observe(self, steps: int) -> None:
        """Tells the schedule of new rows, with so many further steps."""
        self.schedule.observe(
            steps=self.schedule.steps + steps,
            rows=self.store.num_rows,
            sequences=self.store.num_sequences,
            rounds=self.store.rounds(),
        )


class _LocalWriter(NamedTuple):
    replay: LocalReplay
    environments: np.ndarray

    def write(self, rows: Row, new_priority: float = 1.0) -> None:
        """Ignores the priority: the selector chooses it."""
        self.replay.add(rows, self.environments)

    def close(self) -> None:
        pass
