"""What a learner needs of a replay in a program, and such a replay around the in-process store.

`B` denotes the batch, `n` a number of rows.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec
from .pacing import Pacing
from .store import SequenceStore
from .tree import check_priorities


class Writer(Protocol):
    """Takes the rows of one environment, in time order.

    Attributes:
      new_priority: of new sequences, where the replay wants one from the writer.
    """

    new_priority: float

    def write(self, row: Row) -> None:
        """Takes one unbatched row of NumPy arrays, all extras included."""

    def close(self) -> None:
        """Sends what is left, in bounded time."""


class LearnerReplay(Protocol):
    """Where a learner gets its sequences from, wherever they come from. Used by one thread only."""

    def receive(self, timeout: float) -> None:
        """Takes in what has arrived; waits up to `timeout` seconds while no update is due."""

    @property
    def ready(self) -> bool:
        """Whether a call of updates is due now, and `sample` will not wait."""

    def sample(self) -> tuple[Any, Sample]:
        """Draws what one call of updates needs: keys for `set_priorities`, and the sequences."""

    @property
    def new_priority(self) -> float:
        """What actors should give new sequences, where they give them any."""

    def set_priorities(self, keys: Any, priorities: np.ndarray) -> None:
        """Sets priorities `[B]`; those of sequences that have left meanwhile are ignored.

        Raises:
          ValueError: a priority is NaN, infinite or negative; nothing is set then.
        """

    def sample_shapes(self) -> list[Sample]:
        """All that `sample` may give, as `jax.ShapeDtypeStruct`s."""

    @property
    def num_rows(self) -> int:
        """Rows that are kept now."""

    @property
    def num_sequences(self) -> int:
        """Sequences that can be drawn now."""

    def counters(self) -> dict[str, int]:
        """How far it has come.

        `updates` (batches drawn) and, where the replay sees every row, `steps` (transitions
        received) and `learning_since` (the steps at which learning began, -1 before).
        """

    def state(self) -> Any:
        """What `restore` needs, a pytree of arrays."""

    def restore(self, state: Any, counters: Mapping[str, int]) -> None:
        """Takes over what `state` and `counters` gave."""

    def close(self) -> None:
        """Ends the threads."""


class PacedStore:
    """A `SequenceStore` that keeps pace with acting. A `LearnerReplay`.

    `Pacing` has the rule, as in the training loop in one process. It serves a program in one
    thread, and the end of a queue in a program of many processes.
    """

    def __init__(
        self,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        replay: ReplayConfig,
        *,
        num_environments: int,
        seed: int,
    ):
        """Args and errors as of `SequenceStore`."""
        self.store = SequenceStore(
            environment_spec, sequence, replay, num_envs=num_environments, seed=seed
        )
        self._pacing = Pacing(replay, seed=seed)
        self._steps = 0

    def add(self, rows: Row, environments: np.ndarray) -> None:
        """Appends rows `[n, ...]`, one to each of some environments."""
        self.store.add(rows, environments)
        self._steps += int(np.sum(~np.asarray(rows.is_last)))
        self._pacing.observe(
            steps=self._steps,
            rows=self.store.num_rows,
            sequences=self.store.num_sequences,
            rounds=self.store.rounds,
        )

    def writer(self, environment: int) -> Writer:
        """A writer that adds rows at once, for programs of one thread."""
        return _DirectWriter(self, environment)

    def receive(self, timeout: float) -> None:
        """See `LearnerReplay`; rows are here already."""

    @property
    def ready(self) -> bool:
        """See `LearnerReplay`."""
        return self._pacing.due is not None

    def sample(self) -> tuple[Any, Sample]:
        """See `LearnerReplay`; keys are slots and starts, `[2, B]`."""
        newest = self._pacing.due == "newest"
        slots, sample = self.store.newest() if newest else self.store.sample()
        self._pacing.done()
        return np.stack([slots, self.store.starts(slots)]), sample

    @property
    def new_priority(self) -> float:
        """See `LearnerReplay`; it does not matter here."""
        return 1.0

    def set_priorities(self, keys: Any, priorities: np.ndarray) -> None:
        """See `LearnerReplay`."""
        priorities = check_priorities(priorities, keys.shape[1])
        slots, starts = keys
        kept = self.store.starts(slots) == starts
        if kept.any():
            self.store.set_priorities(slots[kept], priorities[kept])

    def sample_shapes(self) -> list[Sample]:
        """See `LearnerReplay`."""
        return self.store.sample_shapes()

    @property
    def num_rows(self) -> int:
        """See `LearnerReplay`."""
        return self.store.num_rows

    @property
    def num_sequences(self) -> int:
        """See `LearnerReplay`."""
        return self.store.num_sequences

    def counters(self) -> dict[str, int]:
        """See `LearnerReplay`."""
        return {
            "steps": self._steps,
            "updates": self._pacing.updates,
            "learning_since": self._pacing.learning_since,
        }

    def state(self) -> Any:
        """See `LearnerReplay`; that of a `SequenceStore`, as a run in one process saves it."""
        return {**self.store.state(), "pacing": self._pacing.state()}

    def restore(self, state: Any, counters: Mapping[str, int]) -> None:
        """See `LearnerReplay`; the environments begin new episodes.

        Raises:
          ValueError: the state is not that of a store.
        """
        if "heads" not in state:
            raise ValueError(
                "The snapshot's rows are in a Reverb checkpoint, but this replay keeps its own: "
                "go on with the selector and the launcher that the run began with."
            )
        self.store.restore(state)
        self.store.cut()
        self._steps = counters["steps"]
        self._pacing.restore(state["pacing"], counters)

    def close(self) -> None:
        """See `LearnerReplay`; there are no threads."""


class _DirectWriter:
    def __init__(self, replay: PacedStore, environment: int):
        self._replay, self._environments = replay, np.array([environment])
        self.new_priority = 1.0

    def write(self, row: Row) -> None:
        self._replay.add(jax.tree.map(lambda x: np.asarray(x)[None], row), self._environments)

    def close(self) -> None:
        pass
