"""Atari games in colour, from emulator states. `Atari` is faster, in C++, but has neither."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import ale_py
import numpy as np

from .arrival import environment_seeds
from .atari import (
    DO_NOTHING,
    FRAME_SKIP,
    NOT_BEGUN,
    SIDE,
    Atari,
    atari_spec,
    check_arguments,
    games,
)
from .sequential import Result, SequentialVector
from .spaces import convert
from .switches import split, values

_NEGLIGIBLE = 1e-3  # OpenCV ignores old pixels of which less is covered


class EmulatedAtari(SequentialVector):
    """E emulators of one game, stepped sequentially, with the preprocessing of `Atari`.

    Rewards, ends and observations equal those of `Atari` bit for bit, except for the observation
    of a last step: here it contains no older frames.

    An episode begins after 0 to `max_noops` frames of doing nothing; or, when there are `states`,
    in one of them, after one frame of doing nothing, because a state has no picture. The k-th
    episode of environment e begins in state `(e + k E) mod S` of S: the first S episodes that E
    environments share begin in S different ones.

    `states` are results of `emulator_state`; `max_noops` is not used with them, and `max_frames`
    count from where the episode begins. Other arguments are as for `Atari`.
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
        sources, self.frames_per_second = environment_seeds(seed, num_envs), Atari.frames_per_second
        check_arguments(game, frame_stack, max_noops, max_frames)
        self._environments = [_Emulator(game, full_action_set) for _ in sources]
        self._generators = [np.random.default_rng(source) for source in sources]
        self._states, self._max_noops = states, max_noops
        if states is not None:
            _check_states(self._environments[0], states, game)
        spec = atari_spec(len(self._environments[0].actions), frame_stack, max_frames)
        converted = convert(spec.observations, spec.actions, spec.max_episode_steps, spec.note)
        super().__init__(*converted, num_envs, limit=spec.max_episode_steps)
        self._frames = np.zeros((num_envs, *spec.observations.shape), np.uint8)  # newest last
        self._episodes = np.zeros(num_envs, np.int64)  # begun so far

    def emulator_state(self) -> bytes:
        """The state of the first environment's emulator, some kilobytes; see `states`."""
        return bytes(self._environments[0].ale.cloneState().serialize())

    def render(self) -> np.ndarray:
        """The newest frame of the first environment, in colour: uint8 `[210, 160, 3]` mostly."""
        if not self._episodes[0]:
            raise ValueError(NOT_BEGUN)
        return self._environments[0].ale.getScreenRGB()

    def _begin(self, e: int) -> Any:
        emulator, turn = self._environments[e], e + self._episodes[e] * self.num_envs
        if self._states is None:
            emulator.begin(int(self._generators[e].integers(self._max_noops + 1)))
        else:
            emulator.begin_in(self._states[turn % len(self._states)])
        self._episodes[e] += 1
        self._frames[e] = 0
        return self._shown(e, emulator.screen())

    def _advance(self, e: int, action: np.ndarray) -> Result:
        reward, picture = self._environments[e].step(int(action))
        return self._shown(e, picture), reward, self._environments[e].ale.game_over(), False

    def _shown(self, e: int, picture: np.ndarray) -> np.ndarray:
        """The frames of environment e, after the newest one `[84, 84]` was put last."""
        frames = self._frames[e]
        frames[:, :, :-1] = frames[:, :, 1:]
        frames[:, :, -1] = picture
        return frames


class _Emulator:
    def __init__(self, game: str, full_action_set: bool) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for each of them
        self.ale = ale = ale_py.ALEInterface()
        ale.setFloat("repeat_action_probability", 0.0)
        ale.setInt("random_seed", 0)  # unused without sticky actions
        ale.loadROM(ale_py.roms.get_rom_path(game))
        self.actions = ale.getLegalActionSet() if full_action_set else ale.getMinimalActionSet()

    def begin(self, noops: int) -> None:
        self.ale.reset_game()
        for _ in range(noops):
            self.ale.act(DO_NOTHING)
            if self.ale.game_over():
                self.ale.reset_game()

    def begin_in(self, state: bytes) -> None:
        self.ale.reset_game()
        self.ale.restoreState(ale_py.ALEState(state))
        self.ale.act(DO_NOTHING)

    def step(self, action: int) -> tuple[float, np.ndarray]:
        """The sum of rewards, and the maximum of the last two frames, `[84, 84]`."""
        reward, frames = 0.0, []
        for _ in range(FRAME_SKIP):
            reward += self.ale.act(self.actions[action])
            frames.append(self.ale.getScreenGrayscale())
            if self.ale.game_over():
                break
        return reward, area_resize(np.max(frames[-2:], axis=0), SIDE, SIDE)

    def screen(self) -> np.ndarray:
        return area_resize(self.ale.getScreenGrayscale(), SIDE, SIDE)

    def close(self) -> None: ...


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
        if emulator.ale.game_over():
            raise ValueError(f"start state {number} of {game} cannot be played: the game is over.")


def emulated_game(id: str) -> tuple[str, dict[str, Any]]:
    """ale-py's name of the game of an id, and arguments of `EmulatedAtari` by its switches."""
    id, named = split(id)
    if id not in games():
        raise ValueError(f"Start states are for Atari games (ALE/...), not for {id!r}.")
    game = games()[id]
    switches = values(named, partial(Atari, game), id, evaluation=True, strict=True)
    switches.pop("num_threads", None)
    if not switches.get("repeat_action_probability", True):
        del switches["repeat_action_probability"]  # these emulators have no other value than 0
    return game, values(switches, partial(EmulatedAtari, game), f"{id} with states")


def area_resize(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Reduces uint8 `[H, W]` to uint8 `[height, width]`, bit for bit as ale-py's vector does.

    OpenCV's `INTER_AREA`: each new pixel is the mean of the old pixels that it covers, weighted by
    the covered area. The order of the float32 additions, columns before rows, matters: sums often
    lie exactly between two grey levels.
    """
    narrow = _combine(picture.astype(np.float32).T, width).T
    return np.rint(_combine(narrow, height)).astype(np.uint8)


def _combine(lines: np.ndarray, count: int) -> np.ndarray:
    """Weighted sums of neighbouring lines: float32 `[N, ...]` to `[count, ...]`."""
    indices, weights = _cover(len(lines), count)
    total = np.zeros((count, *lines.shape[1:]), np.float32)
    for index, weight in zip(indices, weights, strict=True):
        total += lines[index] * weight[:, None]
    return total


@cache
def _cover(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Old lines and their weights, `[most, count]` each; padding has weight 0."""
    scale, covers = size / count, []
    for new in range(count):
        begin = new * scale
        end = min(begin + scale, size)
        parts = [(old, min(end, old + 1) - max(begin, old)) for old in range(int(begin), size)]
        covers.append([(old, part / (end - begin)) for old, part in parts if part > _NEGLIGIBLE])
    most = max(map(len, covers))
    padded = [cover + [(0, 0.0)] * (most - len(cover)) for cover in covers]
    indices = np.array([[old for old, _ in cover] for cover in padded], np.intp)
    weights = np.array([[weight for _, weight in cover] for cover in padded], np.float32)
    return indices.T, weights.T
