"""The learner's end of a Reverb table of sequences, for proportional and uniform selection.

`B` denotes the batch, `T + 1` the rows of a sequence.
"""

import queue
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec
from .reverb_library import reverb
from .reverb_reader import Item, Reader
from .reverb_tables import SEQUENCES, Columns
from .reverb_waiting import ReplayTimeout, call, describe
from .selectors import importance_weights
from .store import row_spec
from .priorities import check_priorities

_MUTATIONS_AHEAD = 16  # batches of priorities on their way
_CHECKPOINT = "reverb_checkpoint"


class TableReplay:
    """Batches that a Reverb table has drawn, read ahead in a thread. A `LearnerReplay`.

    The table's rate limiter keeps the ratio of acting steps to updates. Reverb cannot mix uniform
    draws in, so `uniform_fraction` becomes a floor under the stored powers of priorities: with m
    their mean, `p ** alpha + uniform_fraction * m` gives the same mixture.
    """

    def __init__(
        self,
        address: str,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        replay: ReplayConfig,
        *,
        patience: float = 600.0,
    ):
        """Args as of `make_learner_replay`."""
        self._client = reverb.Client(address)
        self._sequence, self._replay, self._patience = sequence, replay, patience
        self._columns = Columns(environment_spec, sequence, replay)
        self._spec = row_spec(environment_spec, sequence)
        self._updates, self._table_size = 0, 0
        self._largest, self._mean_power = 1.0, 1.0
        self._batch: tuple[np.ndarray, Sample] | None = None
        self._mutator = _Mutator(self._client, patience)
        self._reader = Reader(
            address,
            SEQUENCES,
            self._assemble,
            in_flight=replay.draw_size,
            ahead=1,
            patience=patience,
        )

    def receive(self, timeout: float) -> None:
        """See `LearnerReplay`."""
        if self._batch is None:
            self._batch = self._reader.take(timeout)

    @property
    def ready(self) -> bool:
        """See `LearnerReplay`."""
        self.receive(0.0)
        return self._batch is not None

    def sample(self) -> tuple[np.ndarray, Sample]:
        """See `LearnerReplay`; keys are Reverb's, uint64 `[B]`.

        Raises:
          ReplayTimeout: there was no batch for as long as the patience lasts.
        """
        self.receive(self._patience)
        if self._batch is None:
            raise ReplayTimeout(
                f"Waited {self._patience:.0f} s for a batch: {describe(self._client, SEQUENCES)}."
            )
        batch, self._batch = self._batch, None
        self._updates += self._replay.updates_per_call
        return batch

    @property
    def new_priority(self) -> float:
        """See `LearnerReplay`: the largest so far, as in prioritised experience replay."""
        return self._largest

    def set_priorities(self, keys: Any, priorities: np.ndarray) -> None:
        """See `LearnerReplay`; they are sent behind the caller's back."""
        priorities = check_priorities(priorities, len(keys))
        if self._replay.selector == "uniform":
            return
        self._largest = float(np.max(priorities, initial=self._largest))
        alpha = self._replay.priority_exponent
        if alpha and self._replay.uniform_fraction:
            floor = self._replay.uniform_fraction * self._mean_power
            priorities = (priorities**alpha + floor) ** (1 / alpha)
        priorities = check_priorities(priorities, len(keys))
        self._mutator.put(dict(zip(keys.tolist(), priorities.tolist(), strict=True)))

    def sample_shapes(self) -> list[Sample]:
        """See `LearnerReplay`."""
        return [self._shape(self._replay.draw_size)]

    @property
    def num_rows(self) -> int:
        """See `LearnerReplay`; about as many, since Reverb counts sequences."""
        return self._table_size * self._sequence.period

    @property
    def num_sequences(self) -> int:
        """See `LearnerReplay`; at the newest draw."""
        return self._table_size

    def counters(self) -> dict[str, int]:
        """See `LearnerReplay`; the actors must count their steps."""
        return {"updates": self._updates}

    def state(self) -> Any:
        """See `LearnerReplay`: has Reverb write a checkpoint, and tells where.

        Raises:
          ReplayTimeout: the server does not answer.
        """
        try:
            path = call(self._client.checkpoint, "Reverb's checkpoint", self._patience)
        except RuntimeError as error:
            raise ReplayTimeout(
                f"No checkpoint of Reverb: {error}; {describe(self._client, SEQUENCES)}."
            ) from error
        return {
            _CHECKPOINT: np.frombuffer(path.encode(), np.uint8),
            "largest": np.array(self._largest),
            "mean_power": np.array(self._mean_power),
        }

    def restore(self, state: Any, counters: Mapping[str, int]) -> None:
        """See `LearnerReplay`; the server must have begun with the checkpoint.

        Raises:
          ValueError: the state is that of a store of the learner's own.
        """
        if _CHECKPOINT not in state:
            raise ValueError(
                "The snapshot holds the rows of a learner's own store, which cannot fill a Reverb "
                "table: go on with the selector and the launcher that the run began with."
            )
        self._largest, self._mean_power = float(state["largest"]), float(state["mean_power"])
        self._updates = counters["updates"]

    def close(self) -> None:
        """See `LearnerReplay`."""
        self._reader.close()
        self._mutator.close()

    def _shape(self, batch: int) -> Sample:
        length = self._sequence.length

        def shape(spec: Any, *axes: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((*axes, *spec.shape), spec.dtype)

        rows = jax.tree.map(lambda spec: shape(spec, batch, length), self._spec)
        first = {
            name: jax.tree.map(lambda spec: shape(spec, batch), self._spec.extras[name])
            for name in self._sequence.first_row_extras
        }
        return Sample(
            rows._replace(extras={**rows.extras, **first}),
            jax.ShapeDtypeStruct((batch,), np.float32),
            jax.ShapeDtypeStruct((batch, length), np.bool_),
        )

    def _assemble(self, items: Iterator[Item]) -> tuple[np.ndarray, Sample]:
        """A batch out of the next items; runs in the reader's thread."""
        batch = [next(items) for _ in range(self._replay.draw_size)]
        self._look_at(batch)
        rows, mask = self._stack(batch)
        # Relative to a uniform draw, each in the table as it was then.
        ratios = np.array([item.probability * item.table_size for item in batch])
        weights = importance_weights(ratios, 1, self._replay.importance_exponent)
        keys = np.array([item.key for item in batch], np.uint64)
        return keys, Sample(rows, weights.astype(np.float32), mask)

    def _stack(self, batch: list[Item]) -> tuple[Row, np.ndarray]:
        """Rows `[B, T+1, ...]` and their mask."""
        padded = [self._pad(self._columns.rows(item.columns)) for item in batch]
        rows, mask = jax.tree.map(lambda *x: np.stack(x), *padded)
        return rows, mask

    def _look_at(self, batch: list[Item]) -> None:
        """Each item tells the mean power in the table: its own, over its share of the draws."""
        self._table_size = batch[-1].table_size
        alpha = self._replay.priority_exponent
        powers = [item.priority**alpha / (item.probability * item.table_size) for item in batch]
        self._mean_power = float(np.mean(powers))

    def _pad(self, rows: Row) -> tuple[Row, np.ndarray]:
        """Rows `[n, ...]` to `[T+1, ...]`, with a mask; the first row's extras stay as they are."""
        missing = self._sequence.length - len(rows.is_last)

        def pad(x: np.ndarray) -> np.ndarray:
            return np.pad(x, [(0, missing)] + [(0, 0)] * (x.ndim - 1)) if missing else x

        first = {name: rows.extras[name] for name in self._sequence.first_row_extras}
        rest = {name: value for name, value in rows.extras.items() if name not in first}
        padded = jax.tree.map(pad, rows._replace(extras=rest))
        mask = np.arange(self._sequence.length) < len(rows.is_last)
        return padded._replace(extras={**padded.extras, **first}), mask


class _Mutator:
    """Sends priorities in a thread of its own: the call has no timeout."""

    def __init__(self, client: reverb.Client, patience: float):
        self._client, self._patience = client, patience
        self._updates: queue.Queue[dict[int, float] | None] = queue.Queue(_MUTATIONS_AHEAD)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="set priorities", daemon=True)
        self._thread.start()

    def put(self, updates: dict[int, float]) -> None:
        if self._error is not None:
            raise self._error
        try:
            self._updates.put(updates, timeout=self._patience)
        except queue.Full:
            raise ReplayTimeout(
                f"Waited {self._patience:.0f} s for priorities to be taken: "
                f"{describe(self._client, SEQUENCES)}."
            ) from None

    def close(self) -> None:
        try:
            self._updates.put_nowait(None)
        except queue.Full:
            return  # the server is gone, and the thread with it
        self._thread.join(1.0)

    def _run(self) -> None:
        try:
            while (updates := self._updates.get()) is not None:
                self._client.mutate_priorities(SEQUENCES, updates)
        except Exception as error:
            self._error = error
