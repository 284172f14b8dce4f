"""Atari 2600 games as DQN saw them, on ale-py's own vector of emulators.

`EmulatedAtari` draws in colour and begins in emulator states, which that vector, in C++, cannot.
"""

import math
import os
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import ale_py
import numpy as np
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from dm_env import specs

from ..datatypes import EnvironmentSpec, TimeStep
from .arrival import arrival, checked_actions, enlarge, environment_seeds, integer_seeds
from .plain_data import Attributes
from .sequential import Result, SequentialVector
from .spaces import convert
from .switches import split, values

FRAME_SKIP = 4
SIDE = 84
DO_NOTHING = 0  # an action
NOT_BEGUN = "there is nothing to render before reset()."
RENEWAL = 20_000  # steps of an emulator, after which its next game has a new seed
_NEGLIGIBLE = 1e-3  # OpenCV ignores old pixels of which less is covered
_RESET = 255  # in place of actions: all emulators began new games, with the generators they had
_NOT_KEPT = ("spec", "num_envs", "_emulators", "_played")  # attributes of `Atari`
# These cartridges are for two players; they have no mode for one.
_TWO_PLAYERS = frozenset({"combat", "joust", "maze_craze", "warlords"})


def games() -> dict[str, str]:
    """The games that can be played: their ids (`ALE/MsPacman-v5`) and ale-py's names for them."""
    names = sorted(set(roms.get_all_rom_ids()) - _TWO_PLAYERS)
    return {f"ALE/{name.title().replace('_', '')}-v5": name for name in names}


class Atari:
    """E emulators of one game, on a few threads.

    Preprocessing as DQN's (Mnih et al. 2015, Methods): each action is repeated for 4 frames, the
    observation is the maximum of the last two, gray, 84 x 84. A game that is over ends with a
    discount of 0, one that was cut off by `max_frames` with 1. The observation of a last step can
    mix older frames in, because a game may end before the fourth frame. Rewards are the game's own:
    agents clip or rescale them in their update, as their papers do. docs/environments.md has the
    papers' values of the switches.

    Args:
      game: ale-py's name of the game, in snake case: "pong", "ms_pacman".
      num_envs: E >= 1.
      seed: >= 0. The episodes of environment e depend on `seed` and e alone, not on E or threads.
        It gets a new seed, derived from these, in the first new game after 20,000 steps.
      frame_stack: >= 1, observations (each of 4 frames) that are seen at once: the channels, the
        newest last, zeros before an episode. Agents with a `frame_stack` of their own (ACER's is 4)
        put single ones together.
      full_action_set: offer all 18 actions instead of those that the game uses.
      max_noops: >= 0. An episode begins after 0 to `max_noops` frames of doing nothing.
      max_frames: >= 4. Games are cut off after this many frames (30 minutes), no-ops not counted.
      repeat_action_probability: in [0, 1]. Probability at each frame that the previous action is
        repeated ("sticky actions"; 0.25 in Machado et al. 2018).
      clip_rewards: clip rewards to [-1, 1] here. Runs are evaluated without it.
      episodic_life: a lost life ends the episode, with discount 0. The next one continues the game,
        after one action of doing nothing; a new game begins only when the game is over. Returns are
        of lives. Runs are evaluated without it.
      num_threads: >= 1; the smaller of E and the number of processors when None.
    """

    training_only = ("clip_rewards", "episodic_life")
    frames_per_second = 60 / FRAME_SKIP

    def __init__(
        self,
        game: str,
        *,
        num_envs: int = 1,
        seed: int = 0,
        frame_stack: int = 1,
        full_action_set: bool = False,
        max_noops: int = 30,
        max_frames: int = 108_000,
        repeat_action_probability: float = 0.0,
        clip_rewards: bool = False,
        episodic_life: bool = False,
        num_threads: int | None = None,
    ) -> None:
        self._played = PlayedGames(integer_seeds(seed, num_envs))
        self.num_envs = num_envs
        if num_threads is None:
            num_threads = min(num_envs, os.cpu_count() or 1)
        check_arguments(game, frame_stack, max_noops, max_frames)
        _check_range("repeat_action_probability", repeat_action_probability, 0, 1)
        _check_range("num_threads", num_threads, 1)
        self._emulators: Any = AtariVectorEnv(
            game,
            num_envs,
            num_threads=num_threads,
            stack_num=frame_stack,
            full_action_space=full_action_set,
            noop_max=max_noops + 1 if max_noops else 0,  # ale-py draws from 0 to noop_max - 1
            max_num_frames_per_episode=max_frames,
            repeat_action_probability=repeat_action_probability,
            reward_clipping=clip_rewards,
            frameskip=FRAME_SKIP,
            maxpool=True,
            img_height=SIDE,
            img_width=SIDE,
            use_fire_reset=False,
            episodic_life=False,  # ale-py's would begin a new game after each life
        )
        num_actions = int(self._emulators.single_action_space.n)
        self.spec = atari_spec(num_actions, frame_stack, max_frames, repeat_action_probability)
        self._episodic_life = episodic_life
        self._lives = np.zeros(num_envs, int)
        self._last = np.ones(num_envs, bool)
        self._steps = np.zeros(num_envs, int)  # since the episode began
        self._game_over = np.zeros(num_envs, bool)
        self._over = np.zeros((2, num_envs), bool)  # in the first step: terminated, truncated
        self._picture: np.ndarray | None = None  # the newest frame of the first environment

    def reset(self) -> TimeStep:
        """Starts a new episode in every environment: first steps, `[E, 84, 84, frame_stack]`."""
        if self._picture is None:
            frames, info = self._emulators.reset(seed=self._played.seeds)
        else:
            frames, info = self._emulators.reset()
            self._played.add(np.full(self.num_envs, _RESET))
        self._lives = info["lives"].copy()
        self._over[:] = self._game_over[:] = False
        first = np.ones(self.num_envs, bool)
        return self._arrived(frames, np.zeros(self.num_envs), self._over, first)

    def step(self, actions: np.ndarray) -> TimeStep:
        """Steps every environment: from actions `[E]` to time steps `[E, ...]`."""
        # An action out of range would kill a thread of ale-py, and with it this process would wait
        # for ever.
        actions = checked_actions(actions, self.spec.actions, self.num_envs)
        if self._picture is None:
            return self.reset()
        first = self._last
        if self._episodic_life:
            actions = np.where(first, DO_NOTHING, actions)
        frames, reward, terminated, truncated, info = self._emulators.step(actions)
        self._played.add(actions)
        lives, renewed = info["lives"], self._game_over & self._played.due
        if renewed.any():  # ale-py has begun their games already, with the generators of before
            seeds = self._played.renew(renewed)
            frames, info = self._emulators.reset(seed=seeds, options={"reset_mask": renewed})
            lives = np.where(renewed, info["lives"], lives)
        ends = np.stack([terminated, truncated])
        self._game_over = ends.any(axis=0)
        if self._episodic_life:
            # A game that ends in a first step, which cannot be a last one, ends in the next step.
            late, self._over = self._over, ends & first
            lost, self._lives = lives < self._lives, lives.copy()
            ends = np.stack([ends[0] | lost, ends[1]]) | late
        return self._arrived(frames, reward, ends, first)

    def state(self) -> dict[str, Any]:
        """See `Resumable`: what was played, and how far the episodes are."""
        played, own = Attributes(self._played), Attributes(self, _NOT_KEPT)
        return {"num_envs": self.num_envs, "played": played.state(), "own": own.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Resumable`. The games are played again, a few thousand steps a second."""
        if (found := state["num_envs"]) != self.num_envs:
            raise ValueError(f"the state is of {found} environments instead of {self.num_envs}.")
        Attributes(self._played).restore(state["played"])
        Attributes(self, _NOT_KEPT).restore(state["own"])
        if self._picture is not None:
            self._played.play_again(self._emulators)

    def render(self) -> np.ndarray:
        """What the agent sees in the first environment, 4 times as large: uint8 `[336, 336, 3]`."""
        if self._picture is None:
            raise ValueError(NOT_BEGUN)
        return enlarge(self._picture[..., None].repeat(3, axis=2), 4)

    def close(self) -> None:
        """Stops the emulators. Calling it twice does no harm."""
        self._emulators = None  # ale-py ends its threads when nobody holds them

    def _arrived(
        self, frames: np.ndarray, reward: np.ndarray, ends: np.ndarray, first: np.ndarray
    ) -> TimeStep:
        """Books who begins next, and moves ale-py's axis of stacked frames to the end."""
        self._last = ends.any(axis=0) & ~first
        self._steps = np.where(first, 0, self._steps + 1)
        self._picture = frames[0, -1].copy()
        observation = np.ascontiguousarray(np.moveaxis(frames, 1, -1))
        if self._episodic_life:
            for back in range(1, frames.shape[1]):
                observation[self._steps < back, :, :, -1 - back] = 0
        return arrival(observation, reward, ends[0], ends[1], first)


def atari_spec(
    num_actions: int, frame_stack: int, max_frames: int, sticky: float = 0.0
) -> EnvironmentSpec:
    """The spec of one game."""
    image = specs.BoundedArray((SIDE, SIDE, frame_stack), np.uint8, 0, 255, "observation")
    actions = specs.DiscreteArray(num_actions, np.int32, "action")
    note = f"Sticky actions: repeat_action_probability={sticky:g} (0.25 in Gymnasium's ALE ids)."
    limit = -(-max_frames // FRAME_SKIP)
    return EnvironmentSpec(image, actions, max_episode_steps=limit, note=note)


def check_arguments(game: str, frame_stack: int, max_noops: int, max_frames: int) -> None:
    """Refuses arguments of both kinds of emulators that are out of their ranges."""
    if game not in games().values():
        raise ValueError(f"ale-py has no game {game!r} for one player.")
    _check_range("frame_stack", frame_stack, 1)
    _check_range("max_noops", max_noops, 0)
    _check_range("max_frames", max_frames, FRAME_SKIP)


def _check_range(name: str, value: float, low: float, high: float = math.inf) -> None:
    if not low <= value <= high:
        above = "" if high == math.inf else f" and at most {high}"
        raise ValueError(f"Atari: {name} must be at least {low}{above}, got {value}.")


class PlayedGames:
    """Seeds `[E]` of emulators and their actions since, which repeat their games exactly.

    ale-py's vector of emulators gives no access to their states. A game is a function of the seed
    and the actions, so both are kept, and played again when a run is resumed. New seeds, between
    two games, keep the actions few: setting a seed takes as long as some hundred steps. They are
    derived from the first seed of the same emulator alone.
    """

    def __init__(self, seeds: np.ndarray) -> None:
        self.seeds, self._origins = seeds, seeds.copy()
        self._renewals = np.zeros_like(seeds)
        self._actions: list[bytes] = []  # of all emulators together, step by step
        self._starts = np.zeros_like(seeds)  # steps in `_actions` before the seeds

    @property
    def due(self) -> np.ndarray:
        """`[E]` bool: whose next game should have a new seed."""
        return len(self._actions) - self._starts >= RENEWAL

    def add(self, actions: np.ndarray) -> None:
        """Adds actions `[E]`, in [0, 255); `_RESET` where new games begin without new seeds."""
        self._actions.append(actions.astype(np.uint8).tobytes())

    def renew(self, which: np.ndarray) -> np.ndarray:
        """New seeds for `which` `[E]` bool; returns them, `[which.sum()]`."""
        self._renewals = self._renewals + which
        self.seeds = self.seeds.copy()  # a state that was given away stays as it is
        for e in np.flatnonzero(which):
            source = np.random.SeedSequence([int(self._origins[e]), int(self._renewals[e])])
            self.seeds[e] = int(source.generate_state(1)[0]) >> 1
        self._starts = np.where(which, len(self._actions), self._starts)
        unused = int(self._starts.min())
        del self._actions[:unused]
        self._starts -= unused
        return self.seeds[which]

    def play_again(self, emulators: Any) -> None:
        """Brings an `AtariVectorEnv`, made like the one that played, to where that one is."""
        emulators.reset(seed=self.seeds)
        for t, actions in enumerate([*self._actions, None]):
            begin = self._starts == t
            if t and begin.any():
                emulators.reset(seed=self.seeds[begin], options={"reset_mask": begin})
            if actions is not None and actions[0] == _RESET:
                emulators.reset()
            elif actions is not None:
                emulators.step(np.frombuffer(actions, np.uint8).astype(np.int32))


class EmulatedAtari(SequentialVector):
    """E emulators of one game, stepped sequentially, with the preprocessing of `Atari`.

    Rewards, ends and observations equal `Atari`'s bit for bit, except for the observation
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
        if states is not None and not states:
            raise ValueError("there must be at least one start state, or None for the game's own.")
        for number, state in enumerate(states or ()):
            emulator = self._environments[0]
            try:
                emulator.begin_in(state)
            except SystemError:  # nanobind's translation of ale-py's own error
                raise ValueError(
                    f"start state {number} is not one of {game} in ale-py {ale_py.__version__}."
                ) from None
            if emulator.ale.game_over():
                raise ValueError(
                    f"start state {number} of {game} cannot be played: the game is over."
                )
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
