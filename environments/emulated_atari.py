"""Atari games whose emulator states can be saved and used as starts of episodes, in colour.

`Atari` is faster: ale-py steps its emulators in C++, but gives no access to their states, and no
pictures but those for agents.
"""

from collections.abc import Sequence

import ale_py
import numpy as np

from ..datatypes import TimeStep
from .area_resize import area_resize
from .arrival import arrival, checked_actions, environment_seeds
from .atari import FRAME_SKIP, NOT_BEGUN, SIDE, atari_spec, check_game, check_range

_DO_NOTHING = 0


class EmulatedAtari:
    """E emulators of one game, stepped sequentially, with the preprocessing of `Atari`.

    Rewards, ends and observations equal those of `Atari` bit for bit, except for the observation
    of a last step: here it contains no older frames.

    An episode begins after 0 to `max_noops` frames of doing nothing; or, when there are `states`,
    in one of them, after one frame of doing nothing, because a state has no picture. The k-th
    episode of environment e begins in state `(e + k E) mod S` of S: the first S episodes that E
    environments share begin in S different ones.

    Attributes:
      spec: of one of them.
      num_envs: E.

    Args:
      game: ale-py's name of the game, in snake case.
      num_envs: E >= 1.
      seed: >= 0, of the number of no-ops.
      states: results of `state`; None for the game's own start.
      frame_stack: as for `Atari`.
      full_action_set: as for `Atari`.
      max_noops: as for `Atari`; not used with `states`.
      max_frames: as for `Atari`, counted from where the episode begins.

    Raises:
      ValueError: an argument is out of its range, there is no such game, or a state is not one of
        this game (or of another version of ale-py), or one in which the game is over.
    """

    def __init__(
        self,
        game: str,
        *,
        num_envs: int = 1,
        seed: int = 0,
        states: Sequence[bytes] | None = None,
        frame_stack: int = 1,
        full_action_set: bool = False,
        max_noops: int = 30,
        max_frames: int = 108_000,
    ) -> None:
        sources = environment_seeds(seed, num_envs)
        check_game(game)
        check_range("frame_stack", frame_stack, 1)
        check_range("max_noops", max_noops, 0)
        check_range("max_frames", max_frames, FRAME_SKIP)
        self._emulators = [_Emulator(game, full_action_set) for _ in sources]
        self._generators = [np.random.default_rng(source) for source in sources]
        self._states = states
        self._max_noops, self._max_frames = max_noops, max_frames
        if states is not None:
            _check_states(self._emulators[0], states, game)
        self.num_envs = num_envs
        self.spec = atari_spec(len(self._emulators[0].actions), frame_stack, max_frames)
        self._observation = np.zeros((num_envs, *self.spec.observations.shape), np.uint8)
        self._frames = np.zeros(num_envs, np.int64)
        self._episodes = np.zeros(num_envs, np.int64)  # begun so far
        self._last = np.ones(num_envs, bool)

    def reset(self) -> TimeStep:
        """Starts a new episode in every environment: first steps, `[E, 84, 84, frame_stack]`."""
        self._last = np.ones(self.num_envs, bool)
        return self.step(np.zeros(self.num_envs, np.int32))

    def step(self, actions: np.ndarray) -> TimeStep:
        """Takes actions `[E]` and returns the time steps that follow, `[E, ...]`.

        Raises:
          ValueError: the actions are not E integers of the action spec.
        """
        actions = checked_actions(actions, self.spec.actions, self.num_envs)
        first, reward = self._last, np.zeros(self.num_envs)
        for e, emulator in enumerate(self._emulators):
            if first[e]:
                self._begin(e)
            else:
                reward[e], picture = emulator.step(int(actions[e]))
                self._frames[e] += FRAME_SKIP
                self._see(e, picture)
        terminated = np.array([emulator.over() for emulator in self._emulators])
        truncated = self._frames >= self._max_frames
        self._last = (terminated | truncated) & ~first
        return arrival(self._observation.copy(), reward, terminated, truncated, first)

    def state(self) -> bytes:
        """The state of the first environment's emulator, some kilobytes; see `states`."""
        return self._emulators[0].state()

    def render(self) -> np.ndarray:
        """The newest frame of the first environment, in colour: uint8 `[210, 160, 3]` mostly.

        Raises:
          ValueError: no episode has begun.
        """
        if not self._episodes[0]:
            raise ValueError(NOT_BEGUN)
        return self._emulators[0].picture()

    def close(self) -> None:
        """Stops the emulators. Calling it twice does no harm."""
        self._emulators = []

    def _begin(self, e: int) -> None:
        emulator, turn = self._emulators[e], e + self._episodes[e] * self.num_envs
        if self._states is None:
            emulator.begin(int(self._generators[e].integers(self._max_noops + 1)))
        else:
            emulator.begin_in(self._states[turn % len(self._states)])
        self._episodes[e] += 1
        self._frames[e] = 0
        self._observation[e] = 0
        self._see(e, emulator.screen())

    def _see(self, e: int, picture: np.ndarray) -> None:
        """Puts the newest picture `[84, 84]` last."""
        self._observation[e, :, :, :-1] = self._observation[e, :, :, 1:]
        self._observation[e, :, :, -1] = picture


class _Emulator:
    """One emulator; a step is four frames of one action."""

    def __init__(self, game: str, full_action_set: bool) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for each of them
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.setInt("random_seed", 0)  # unused without sticky actions
        self._ale.loadROM(ale_py.roms.get_rom_path(game))
        ale = self._ale
        self.actions = ale.getLegalActionSet() if full_action_set else ale.getMinimalActionSet()

    def begin(self, noops: int) -> None:
        self._ale.reset_game()
        for _ in range(noops):
            self._ale.act(_DO_NOTHING)
            if self._ale.game_over():
                self._ale.reset_game()

    def begin_in(self, state: bytes) -> None:
        self._ale.reset_game()
        self._ale.restoreState(ale_py.ALEState(state))
        self._ale.act(_DO_NOTHING)

    def step(self, action: int) -> tuple[float, np.ndarray]:
        """The sum of rewards, and the maximum of the last two frames, `[84, 84]`."""
        reward, frames = 0, []
        for _ in range(FRAME_SKIP):
            reward += self._ale.act(self.actions[action])
            frames.append(self._ale.getScreenGrayscale())
            if self._ale.game_over():
                break
        return reward, area_resize(np.maximum.reduce(frames[-2:]), SIDE, SIDE)

    def screen(self) -> np.ndarray:
        return area_resize(self._ale.getScreenGrayscale(), SIDE, SIDE)

    def picture(self) -> np.ndarray:
        return self._ale.getScreenRGB()

    def over(self) -> bool:
        return bool(self._ale.game_over())

    def state(self) -> bytes:
        return bytes(self._ale.cloneState().serialize())


def _check_states(emulator: _Emulator, states: Sequence[bytes], game: str) -> None:
    if not states:
        raise ValueError("there must be at least one start state, or None for the game's own.")
    for number, state in enumerate(states):
        try:
            emulator.begin_in(state)
        except SystemError:  # nanobind's translation of ale-py's own error
            raise ValueError(
                f"start state {number} is not one of {game} in ale-py {ale_py.__version__}."
            ) from None
        if emulator.over():
            raise ValueError(f"start state {number} of {game} cannot be played: the game is over.")
