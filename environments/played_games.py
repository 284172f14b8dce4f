"""What E emulators have played: seeds and actions, which repeat their games exactly.

ale-py's vector of emulators gives no access to their states. A game is a function of the seed and
the actions, so both are kept, and played again when a run is resumed. New seeds, between two games,
keep the actions few: setting a seed takes as long as some hundred steps.

`E` denotes the emulators.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

RENEWAL = 20_000  # steps of an emulator, after which its next game has a new seed
_RESET = 255  # in place of actions: all emulators began new games, with the generators they had


class PlayedGames:
    """Seeds of E emulators, and their actions since.

    Args:
      seeds: `[E]`, in [0, 2^31). Later seeds of emulator e are derived from `seeds[e]` alone.
    """

    def __init__(self, seeds: np.ndarray) -> None:
        self._origins = seeds
        self._renewals = np.zeros_like(seeds)
        self._actions = bytearray()  # of all emulators together, step by step
        self._starts = np.zeros_like(seeds)  # steps in `_actions` before the seeds

    @property
    def seeds(self) -> np.ndarray:
        """The newest seeds `[E]`."""
        each = zip(self._origins.tolist(), self._renewals.tolist(), strict=True)
        return np.array([_seed(origin, count) for origin, count in each], np.int64)

    @property
    def due(self) -> np.ndarray:
        """`[E]` bool: whose next game should have a new seed."""
        return self._num_steps - self._starts >= RENEWAL

    def add(self, actions: np.ndarray) -> None:
        """Adds actions `[E]`, in [0, 255)."""
        self._actions += actions.astype(np.uint8).tobytes()

    def add_reset(self) -> None:
        """Adds the beginning of new games in all emulators, without new seeds."""
        self.add(np.full_like(self._origins, _RESET))

    def renew(self, which: np.ndarray) -> np.ndarray:
        """New seeds for `which` `[E]` bool; returns them, `[which.sum()]`."""
        self._renewals = self._renewals + which
        self._starts = np.where(which, self._num_steps, self._starts)
        unused = int(self._starts.min())
        del self._actions[: unused * len(self._starts)]
        self._starts -= unused
        return self.seeds[which]

    def state(self) -> dict[str, Any]:
        """In plain data."""
        state = {"origins": self._origins, "renewals": self._renewals, "starts": self._starts}
        return {**state, "actions": bytes(self._actions)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the state of as many emulators.

        Raises:
          ValueError: their number is another one.
        """
        found, own = len(state["origins"]), len(self._origins)
        if found != own:
            raise ValueError(f"the state is one of {found} environments instead of {own}.")
        self._origins, self._renewals = state["origins"], state["renewals"]
        self._actions, self._starts = bytearray(state["actions"]), state["starts"]

    def play_again(self, emulators: Any) -> None:
        """Brings an `AtariVectorEnv`, made like the one that played, to where that one is."""
        num_envs, seeds = len(self._origins), self.seeds
        emulators.reset(seed=seeds)
        actions = np.frombuffer(bytes(self._actions), np.uint8).reshape(-1, num_envs)
        for t in range(len(actions) + 1):
            begin = self._starts == t
            if t and begin.any():
                emulators.reset(seed=seeds[begin], options={"reset_mask": begin})
            if t < len(actions) and actions[t][0] == _RESET:
                emulators.reset()
            elif t < len(actions):
                emulators.step(actions[t].astype(np.int32))

    @property
    def _num_steps(self) -> int:
        return len(self._actions) // len(self._origins)


def _seed(origin: int, renewals: int) -> int:
    if not renewals:
        return origin
    return int(np.random.SeedSequence([origin, renewals]).generate_state(1)[0]) >> 1
