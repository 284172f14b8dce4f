"""The learner's end of two Reverb tables: the newest sequences, once each, and replayed ones.

`E` denotes the environments of all actors together.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Sample, SequenceSpec
from .schedule import Pacing
from .reverb_reader import Item, Reader
from .reverb_table_replay import TableReplay
from .reverb_tables import NEWEST


class RoundsReplay(TableReplay):
    """A `TableReplay` that learns in rounds, as `Pacing` has them. A `LearnerReplay`.

    A round begins when E sequences have come through the queue, which holds as many: fast actors
    wait for the learner. They are those that were finished next, so an environment may be among
    them twice and another one not at all. Priorities of the newest sequences are not kept.
    """

    def __init__(
        self,
        address: str,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        replay: ReplayConfig,
        *,
        num_environments: int,
        seed: int,
        patience: float = 600.0,
    ):
        """Args as of `make_learner_replay`."""
        super().__init__(address, environment_spec, sequence, replay, patience=patience)
        self._num_environments = num_environments
        self._pacing, self._rounds = Pacing(replay, seed=seed), 0
        self._newest = Reader(
            address,
            NEWEST,
            self._assemble_newest,
            in_flight=num_environments,
            ahead=1,
            patience=patience,
        )

    def receive(self, timeout: float) -> None:
        """See `LearnerReplay`."""
        if self._batch is not None:
            return
        if self._pacing.due == "replayed":
            super().receive(timeout)
            return
        self._batch = self._newest.take(timeout)
        if self._batch is not None:
            self._begin_round()

    def sample(self) -> tuple[np.ndarray, Sample]:
        """See `LearnerReplay`; keys are Reverb's, uint64 `[E]` or `[B]`."""
        batch = super().sample()
        self._pacing.done()
        return batch

    def sample_shapes(self) -> list[Sample]:
        """See `LearnerReplay`."""
        return [*super().sample_shapes(), self._shape(self._num_environments)]

    def state(self) -> Any:
        """See `LearnerReplay`."""
        return {**super().state(), "pacing": self._pacing.state()}

    def restore(self, state: Any, counters: Mapping[str, int]) -> None:
        """See `LearnerReplay`."""
        super().restore(state, counters)
        self._pacing.restore(state["pacing"], counters)
        self._rounds = self._pacing.rounds

    def close(self) -> None:
        """See `LearnerReplay`."""
        super().close()
        self._newest.close()

    def _begin_round(self) -> None:
        self._rounds += 1
        sequences = self._rounds * self._num_environments
        rows = min(sequences * self._sequence.period, self._replay.capacity)
        # The actors count steps; what is told here is right but for last time steps.
        self._pacing.observe(
            steps=sequences * self._sequence.period,
            rows=rows,
            sequences=sequences,
            rounds=self._rounds,
        )

    def _assemble_newest(self, items: Iterator[Item]) -> tuple[np.ndarray, Sample]:
        """A batch out of the queue; runs in the reader's thread."""
        batch = [next(items) for _ in range(self._num_environments)]
        rows, mask = self._stack(batch)
        keys = np.array([item.key for item in batch], np.uint64)
        return keys, Sample(rows, np.ones(len(batch), np.float32), mask)
