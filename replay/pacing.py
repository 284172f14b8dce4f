"""Which updates are due: the one rule of all training loops. Pure Python, no rows, no clock.

At a steady pace: from `min_rows` rows on, one update from the store for so many time steps, made
in calls of `updates_per_call`. In rounds, as ACER learns (Wang et al. 2017, Algorithm 1): whenever
every environment has one more complete segment, one update on the newest ones (if `on_policy`),
then n ~ Poisson(`replay_ratio`) updates from the store, these from `min_rows` rows on.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from ..datatypes import ReplayConfig

Due: TypeAlias = Literal["newest", "replayed"]
_DRAWS = 1  # beside the store's own draws, from the same seed


class Pacing:
    """Says which call of updates is due, and is told when it was made.

    Attributes:
      updates: made so far.
      rounds: segments of every environment that have been learned from.
      learning_since: time steps at which the first update came within reach, -1 before.
    """

    def __init__(self, replay: ReplayConfig, *, seed: int):
        """Begins at 0 time steps; the seed is that of the Poisson draws."""
        self.updates = 0
        self.learning_since = -1
        self._replay = replay
        self._in_rounds = replay.pace == "rounds"
        self._rng = np.random.default_rng([seed, _DRAWS])
        self._steps = self.rounds = 0
        self._newest, self._replayed = False, 0  # due in this round

    def observe(self, *, steps: int, rows: int, sequences: int, rounds: int) -> None:
        """Takes note of how far acting has come; call it whenever rows were added.

        Args:
          steps: time steps taken, over all environments.
          rows: that the store keeps.
          sequences: that can be drawn.
          rounds: segments that have been completed in every environment.
        """
        self._steps = steps
        enough = rows >= self._replay.min_rows and sequences > 0
        if self._in_rounds and rounds > self.rounds:
            self.rounds = rounds
            self._newest = self._replay.on_policy
            if enough:
                self._replayed += int(self._rng.poisson(self._replay.replay_ratio))
        begins = self.due is not None if self._in_rounds else enough
        if self.learning_since < 0 and begins:
            self.learning_since = steps

    @property
    def due(self) -> Due | None:
        """The next call: on the newest segments, on replayed ones, or none now."""
        if self._in_rounds:
            if self._newest:
                return "newest"
            return "replayed" if self._replayed else None
        if self.learning_since < 0:
            return None
        acted = self._steps - self.learning_since
        due = int(acted / self._replay.acting_steps_per_update) - self.updates
        return "replayed" if due >= self._replay.updates_per_call else None

    def done(self) -> None:
        """Tells that the call that was due has been made."""
        self.updates += self._replay.updates_per_call
        if self._newest:
            self._newest = False
        elif self._replayed:
            self._replayed -= 1

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs besides the counters, a pytree of arrays."""
        rng = json.dumps(self._rng.bit_generator.state).encode()
        return {
            "rounds": np.asarray([self.rounds, self._newest, self._replayed], np.int64),
            "rng": np.frombuffer(rng, np.uint8),
        }

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """Takes over what `state` gave, and `steps`, `updates` and `learning_since`."""
        rounds, newest, replayed = (int(x) for x in state["rounds"])
        self.rounds, self._newest, self._replayed = rounds, bool(newest), replayed
        self._rng.bit_generator.state = json.loads(np.asarray(state["rng"]).tobytes())
        self._steps, self.updates = counters["steps"], counters["updates"]
        self.learning_since = counters["learning_since"]


def mean_acting_steps_per_update(replay: ReplayConfig, *, period: int, num_envs: int) -> float:
    """Time steps for each update from the store, on average, whichever way they are paced.

    Args:
      replay: how often is learned.
      period: rows between the starts of adjacent segments.
      num_envs: environments.
    """
    if replay.pace == "steady":
        return replay.acting_steps_per_update
    return period * num_envs / replay.replay_ratio
