"""The schedule of updates: when a call of updates is due, and on which sequences.

Steady pace: from `min_rows` rows on, one update on replayed sequences for every
`acting_steps_per_update` time steps, in calls of `updates_per_call`. In rounds, as in ACER (Wang et
al. 2017, Algorithm 1): whenever every environment has completed one more sequence, one update on
the newest ones (if `on_policy`), then n updates on replayed ones, these from `min_rows` rows on. A
round of E environments adds E sequences and a batch has `batch_size`, so n ~ Poisson(`replay_ratio`
* E / `batch_size`) replays each of them `replay_ratio` times on average. They are made in calls of
`updates_per_call`, too: what is left waits for the next round.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from ..datatypes import ReplayConfig

UpdateKind: TypeAlias = Literal["newest", "replayed"]
_POISSON_STREAM = 1  # separates these draws from the store's, which have the same seed


class UpdateSchedule:
    """Decides which call of updates is due, from the progress of acting and the calls made.

    Attributes:
      steps, updates, rounds: taken over all environments, made and begun so far.
      learning_since: time steps at which the first update became possible, -1 before.
    """

    def __init__(self, config: ReplayConfig, *, num_envs: int, seed: int):
        """Starts at 0 time steps of `num_envs` environments; `seed` is for the Poisson draws."""
        self._config, self._in_rounds = config, config.pace == "rounds"
        self._mean_replays = config.replay_ratio * num_envs / config.batch_size
        self._rng = np.random.default_rng([seed, _POISSON_STREAM])
        self.steps = self.updates = self.rounds = 0
        self.learning_since = -1
        self._newest, self._replayed = False, 0  # updates that this round still has to make

    def observe(self, *, steps: int, rows: int, sequences: int, rounds: int) -> None:
        """Records progress: `sequences` can be drawn, each environment made `rounds` of them."""
        self.steps = steps
        enough = rows >= self._config.min_rows and sequences > 0
        if self._in_rounds and rounds > self.rounds:
            self.rounds = rounds
            self._newest = self._config.on_policy
            if enough:
                self._replayed += int(self._rng.poisson(self._mean_replays))
        begins = self.due is not None if self._in_rounds else enough
        if self.learning_since < 0 and begins:
            self.learning_since = steps

    @property
    def due(self) -> UpdateKind | None:
        """The kind of the call that is due first; None if none is."""
        newest, replayed = self.calls
        return "newest" if newest else "replayed" if replayed else None

    @property
    def calls(self) -> tuple[int, int]:
        """How many calls are due: on the newest sequences, and on replayed ones."""
        updates = self._replayed
        if not self._in_rounds:
            if self.learning_since < 0:
                return 0, 0
            acted = self.steps - self.learning_since
            updates = int(acted / self._config.acting_steps_per_update) - self.updates
        return int(self._newest), max(0, updates // self._config.updates_per_call)

    def done(self) -> int:
        """Records that the call that was due has been made; returns its number of updates."""
        if self._newest:
            self._newest, count = False, 1
        else:
            count = self._config.updates_per_call
            self._replayed -= count * self._in_rounds
        self.updates += count
        return count

    def undo(self, updates: int, *, newest: bool) -> None:
        """The opposite of `done`, for a call that is not made after all."""
        self.updates -= updates
        self._newest |= newest
        self._replayed += updates * (self._in_rounds and not newest)

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs besides the counters, a pytree of arrays."""
        return {
            "rounds": np.asarray([self.rounds, self._newest, self._replayed], np.int64),
            "rng": generator_state(self._rng),
        }

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """Restores a `state`, and the counters `steps`, `updates` and `learning_since`."""
        rounds, newest, replayed = (int(x) for x in state["rounds"])
        self.rounds, self._newest, self._replayed = rounds, bool(newest), replayed
        set_generator_state(self._rng, state["rng"])
        self.steps, self.updates = counters["steps"], counters["updates"]
        self.learning_since = counters["learning_since"]


def generator_state(rng: np.random.Generator) -> np.ndarray:
    """The state of a generator for a snapshot: uint8 `[n]`."""
    return np.frombuffer(json.dumps(rng.bit_generator.state).encode(), np.uint8)


def set_generator_state(rng: np.random.Generator, state: Any) -> None:
    """Sets what `generator_state` returned."""
    rng.bit_generator.state = json.loads(np.asarray(state).tobytes())
