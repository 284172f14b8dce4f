"""What a learner needs of a replay in a program, and such a replay around the in-process store.

`B` denotes the batch, `n` a number of rows.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ..environments.types import EnvironmentSpec
from .spec import ReplayConfig, Row, Sample, SequenceSpec
from .store import SequenceStore


class Writer(Protocol):
    """Takes the rows of one environment, in time order."""

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
        """Whether an update is due now, and `sample` will not wait."""

    def sample(self) -> tuple[Any, Sample]:
        """Draws a batch for one update: keys for `set_priorities`, and the sequences."""

    def set_priorities(self, keys: Any, priorities: np.ndarray) -> None:
        """Sets priorities `[B]`; those of sequences that have left meanwhile are ignored.

        Raises:
          ValueError: a priority is NaN, infinite or negative; nothing is set then.
        """

    def sample_shape(self) -> Sample:
        """What `sample` gives, as `jax.ShapeDtypeStruct`s."""

    @property
    def num_rows(self) -> int:
        """Rows that are kept now."""

    @property
    def num_sequences(self) -> int:
        """Sequences that can be drawn now."""

    def counters(self) -> dict[str, int]:
        """`steps` (transitions received), `updates` (batches drawn), `learning_since`, as `Loop`'s."""

    def state(self) -> Any:
        """What `restore` needs, a pytree of arrays."""

    def restore(self, state: Any, counters: Mapping[str, int]) -> None:
        """Takes over what `state` and `counters` gave."""

    def close(self) -> None:
        """Ends the threads."""


class PacedStore:
    """A `SequenceStore` that keeps to the acting steps per update. A `LearnerReplay`.

    The rule is the one of the training loop in one process: learning starts at `min_rows` rows, and
    from then on one update is due for each `acting_steps_per_update` transitions. It serves a
    program in one thread, and the end of a queue in a program of many processes.
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
        """Args as of `SequenceStore`."""
        self._replay = replay
        self.store = SequenceStore(
            environment_spec, sequence, replay, num_envs=num_environments, seed=seed
        )
        self.steps = self.updates = 0
        self.learning_since = -1

    def writer(self, environment: int) -> Writer:
        """A writer that adds rows at once, for programs of one thread."""
        raise NotImplementedError
