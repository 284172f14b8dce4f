"""Atari: against emulators read by hand, ale-py's vector against ours, and starts from states."""

import ale_py
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from stepping import FIRST, LAST, MID, history, random_actions

from retrax.environments.atari import Atari, EmulatedAtari, area_resize, games
from retrax.environments.start_states import load_states, save_states

DOWN, ACROSS = oracles.area_weights(210, 84), oracles.area_weights(160, 84).T


class ByHand:
    """One emulator, one frame at a time; shrunk by areas in float64. Shares nothing with ours."""

    def __init__(self, game, full=False):
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("random_seed", 0)
        self.ale.loadROM(ale_py.roms.get_rom_path(game))
        self.actions = self.ale.getLegalActionSet() if full else self.ale.getMinimalActionSet()
        self.ale.reset_game()

    def step(self, action):
        """Four frames: the sum of rewards, and the shrunk maximum of the last two."""
        reward, frames = 0, []
        for _ in range(4):
            if not self.ale.game_over():
                reward += self.ale.act(self.actions[action])
                frames.append(self.ale.getScreenGrayscale())
        return reward, DOWN @ np.maximum(*([frames[0], *frames][-2:])) @ ACROSS

    def look(self):
        return DOWN @ self.ale.getScreenGrayscale() @ ACROSS


def assert_same_picture(found, exact):
    # Half a grey level of rounding; ale-py computes the means in float32.
    np.testing.assert_allclose(found.astype(float), exact, atol=0.5 + 1e-3)


@pytest.mark.parametrize(
    ("game", "full", "steps"),
    [
        ("pong", False, 150),
        ("breakout", False, 600),  # all lives: an episode is a game
        ("seaquest", False, 150),
        ("montezuma_revenge", True, 60),
    ],
)
def test_pixels_and_rewards_are_those_of_an_emulator_read_by_hand(game, full, steps):
    ours, hand = Atari(game, max_noops=0, full_action_set=full), ByHand(game, full)
    assert ours.spec.actions.num_values == len(hand.actions)
    assert_same_picture(ours.reset().observation[0, :, :, 0], hand.look())
    for action in random_actions(ours, steps, seed=1)[:, 0]:
        timestep = ours.step(np.array([action]))
        reward, picture = hand.step(int(action))
        assert timestep.reward[0] == reward
        assert (timestep.discount[0] == 0) == hand.ale.game_over()
        if timestep.step_type[0] == LAST:
            break  # its picture may contain older frames, as its docstring says
        assert_same_picture(timestep.observation[0, :, :, 0], picture)
    assert hand.ale.game_over() == (game == "breakout")
    ours.close()


def test_with_episodic_life_a_lost_life_ends_an_episode_and_the_game_continues():
    ours, hand = Atari("breakout", max_noops=0, episodic_life=True), ByHand("breakout")
    lives = all_lives = hand.ale.lives()
    assert all_lives > 1
    timestep, episodes = ours.reset(), 0
    for action in random_actions(ours, 6000)[:, 0]:
        first = timestep.step_type[0] == LAST
        timestep = ours.step(np.array([action]))
        reward, picture = hand.step(0 if first else int(action))
        assert timestep.reward[0] == (0 if first else reward)
        over = hand.ale.game_over()
        lost = hand.ale.lives() < lives
        lives = hand.ale.lives()
        assert timestep.step_type[0] == (FIRST if first else LAST if lost or over else MID)
        assert timestep.discount[0] == (timestep.step_type[0] != LAST)
        episodes += timestep.step_type[0] == LAST
        if over:
            break
        assert_same_picture(timestep.observation[0, :, :, 0], picture)
    assert episodes == all_lives
    hand.ale.reset_game()  # the next episode begins a new game, without the no-op
    timestep = ours.step(np.array([action]))
    assert timestep.step_type[0] == FIRST
    assert_same_picture(timestep.observation[0, :, :, 0], hand.look())
    ours.close()


def test_stacked_frames_do_not_cross_a_lost_life():
    """A channel is the frame of so many steps before, or 0 before the life began."""
    singles, stacks = (
        Atari("breakout", num_envs=2, max_noops=0, episodic_life=True, frame_stack=number)
        for number in (1, 4)
    )
    actions = random_actions(singles, 200)
    single, stacked = history(singles, actions), history(stacks, actions)
    begins = single["step_type"] == FIRST
    assert begins[1:].sum() > 4
    for environment in range(2):
        begin = 0
        for t in range(len(begins)):
            begin = t if begins[t, environment] else begin
            for back in range(4):
                frame = stacked["observation"][t, environment, :, :, 3 - back]
                before = single["observation"][max(0, t - back), environment, :, :, 0]
                np.testing.assert_array_equal(frame, before if t - back >= begin else 0)


def test_a_game_that_ends_in_the_first_step_after_a_lost_life_ends_the_next_step():
    whole = Atari("breakout", max_noops=0, episodic_life=True)
    actions = random_actions(whole, 400)
    kinds = history(whole, actions)["step_type"][:, 0]
    lost = int(np.argmax(kinds == LAST))
    cut = Atari("breakout", max_noops=0, episodic_life=True, max_frames=4 * (lost + 1))
    steps = history(cut, actions)
    np.testing.assert_array_equal(
        steps["step_type"][lost : lost + 5, 0], [LAST, FIRST, LAST, FIRST, MID]
    )
    np.testing.assert_array_equal(steps["discount"][lost : lost + 4, 0], [0, 1, 1, 1])
    np.testing.assert_array_equal(steps["reward"][lost + 1 : lost + 4, 0], 0)


def test_no_op_starts_are_from_zero_to_most_frames_of_doing_nothing():
    # Seaquest's picture changes in three of four frames: the number of no-ops can be read off it.
    hand, most = ByHand("seaquest"), 6
    pictures = [hand.look()]
    for _ in range(most):
        hand.ale.act(hand.actions[0])
        pictures.append(hand.look())
    same = np.array([[np.array_equal(one, two) for one in pictures] for two in pictures])
    readable = same.argmax(axis=1)  # the first frame that looks like this one
    environment = Atari("seaquest", num_envs=8, seed=0, max_noops=most)
    counts = []
    for _ in range(8):
        for seen in environment.reset().observation[..., 0]:
            fits = [np.abs(seen - picture).max() < 0.51 for picture in pictures]
            assert any(fits)
            counts.append(fits.index(True))
    environment.close()
    assert most in readable
    assert set(counts) == set(readable)


def test_switches_of_ale_py():
    raw, clipped = Atari("space_invaders"), Atari("space_invaders", clip_rewards=True)
    sticky = Atari("space_invaders", repeat_action_probability=0.9)
    assert "repeat_action_probability=0.9 (0.25 in" in sticky.spec.note
    actions = random_actions(raw, 250)
    one, two, three = (history(each, actions) for each in (raw, clipped, sticky))
    assert one["reward"].max() >= 5  # so that there is something to clip
    np.testing.assert_array_equal(np.clip(one["reward"], -1, 1), two["reward"])
    np.testing.assert_array_equal(one["observation"], two["observation"])
    assert (one["observation"] != three["observation"]).any()


def test_render_is_what_the_agent_sees_enlarged():
    environment = Atari("pong", num_envs=2, frame_stack=2)
    with pytest.raises(ValueError, match="nothing to render before reset"):
        environment.render()
    observation = environment.reset().observation  # the older of its two frames is black
    picture = environment.render()
    assert picture.shape == (336, 336, 3)
    assert picture.dtype == np.uint8
    for channel in range(3):
        np.testing.assert_array_equal(picture[::4, 1::4, channel], observation[0, :, :, 1])


def test_games_are_those_that_gymnasium_registers():
    import gymnasium

    gymnasium.register_envs(ale_py)
    assert sorted(games()) == sorted(id for id in gymnasium.registry if id.startswith("ALE/"))
    assert games()["ALE/MsPacman-v5"] == "ms_pacman"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"frame_stack": 0}, "frame_stack must be at least 1, got 0"),
        ({"max_noops": -1}, "max_noops must be at least 0, got -1"),
        ({"max_frames": 3}, "max_frames must be at least 4, got 3"),
        ({"num_threads": 0}, "num_threads must be at least 1, got 0"),
        (
            {"repeat_action_probability": 1.5},
            "repeat_action_probability must be at least 0 and at most 1, got 1.5",
        ),
        ({"game": "Pong"}, "no game 'Pong' for one player"),
        ({"game": "combat"}, "no game 'combat' for one player"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, message):
    switches = {"num_threads", "repeat_action_probability"}
    for kind in [Atari] + [EmulatedAtari] * (not switches & kwargs.keys()):
        with pytest.raises(ValueError, match=message):
            kind(**{"game": "pong", **kwargs})


def played(game="pong", steps=60, seed=0, **kwargs):
    """An environment in the middle of a game."""
    environment = EmulatedAtari(game, max_noops=0, **kwargs)
    environment.reset()
    for action in random_actions(environment, steps, seed):
        environment.step(action)
    return environment


def assert_equal(one, two):
    for name in ("step_type", "reward", "discount"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    if one.step_type[0] != LAST:  # Atari's last pictures can mix older frames in
        np.testing.assert_array_equal(one.observation, two.observation)


OTHERS = {"full_action_set": True, "frame_stack": 3, "max_frames": 402}


@pytest.mark.parametrize(
    ("game", "kwargs"),
    [("pong", OTHERS), ("breakout", {}), ("montezuma_revenge", OTHERS), ("road_runner", {})],
)
def test_it_is_ale_pys_vectorised_environment_bit_for_bit(game, kwargs):
    ours, theirs = (made(game, max_noops=0, **kwargs) for made in (EmulatedAtari, Atari))
    assert ours.spec == theirs.spec
    assert_equal(ours.reset(), theirs.reset())
    ends = 0
    for action in random_actions(ours, 250, seed=1):
        found, expected = ours.step(action), theirs.step(action)
        if kwargs and found.step_type[0] == LAST != expected.step_type[0]:
            pytest.fail("cut off at another step")
        assert_equal(found, expected)
        ends += found.step_type[0] == LAST
    assert ends >= 2 or not kwargs


def test_a_state_is_played_on_as_it_would_have_been():
    environment = played("seaquest")
    again = EmulatedAtari("seaquest", states=[environment.emulator_state()])
    # One frame of doing nothing, in the old emulator too.
    emulator = environment._environments[0]
    emulator.ale.act(0)
    np.testing.assert_array_equal(again.reset().observation[0, :, :, 0], emulator.screen())
    np.testing.assert_array_equal(again.render(), emulator.ale.getScreenRGB())
    for action in random_actions(environment, 60, seed=2):
        assert_equal(environment.step(action), again.step(action))


def test_episodes_begin_in_each_state_in_turn():
    states = [played(steps=steps).emulator_state() for steps in (20, 40, 60)]
    pictures = [EmulatedAtari("pong", states=[s]).reset().observation[0] for s in states]
    assert (pictures[0] != pictures[1]).any()
    assert (pictures[1] != pictures[2]).any()
    environment = EmulatedAtari("pong", states=states, num_envs=2, max_frames=8)
    begun = [[], []]
    timestep = environment.reset()
    for _ in range(9):
        for e in range(2):
            if timestep.step_type[e] == FIRST:
                begun[e].append(
                    [np.array_equal(timestep.observation[e], p) for p in pictures].index(True)
                )
        timestep = environment.step(np.zeros(2, int))
    assert begun == [[0, 2, 1], [1, 0, 2]]


def test_no_op_starts_are_spread_and_depend_on_the_seed_alone():
    def pictures(num_envs, seed):
        environment = EmulatedAtari("seaquest", num_envs=num_envs, seed=seed)
        return np.stack([environment.reset().observation for _ in range(15)])

    one = pictures(1, seed=0)
    assert len(np.unique(one.reshape(15, -1), axis=0)) > 5
    np.testing.assert_array_equal(pictures(2, seed=0)[:, :1], one)
    assert (pictures(1, seed=1) != one).any()


def test_states_of_another_game_or_of_an_ended_one_are_refused():
    for states, sentence in (
        ([], "must be at least one start state"),
        ([b"abc"], f"start state 0 is not one of pong in ale-py {ale_py.__version__}"),
    ):
        with pytest.raises(ValueError, match=sentence):
            EmulatedAtari("pong", states=states)
    environment = EmulatedAtari("breakout", max_noops=0)
    timestep = environment.reset()
    begin = environment.emulator_state()
    for action in random_actions(environment, 600):
        timestep = environment.step(action)
        if timestep.step_type[0] == LAST:
            break
    assert timestep.discount[0] == 0
    with pytest.raises(ValueError, match=r"start state 1 of breakout cannot be played"):
        EmulatedAtari("breakout", states=[begin, environment.emulator_state()])
    with pytest.raises(ValueError, match="start state 0 is not one of pong"):
        EmulatedAtari("pong", states=[begin])


# Smaller pictures: against means of areas in float64


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_pixels_are_means_of_areas(data):
    picture = data.draw(hnp.arrays(np.uint8, st.tuples(*[st.integers(1, 24)] * 2)))
    height, width = (data.draw(st.integers(1, size)) for size in picture.shape)
    down = oracles.area_weights(picture.shape[0], height)
    across = oracles.area_weights(picture.shape[1], width).T
    exact = down @ picture @ across
    found = area_resize(picture, height, width)
    assert found.dtype == np.uint8
    assert found.shape == (height, width)
    # Half a grey level of rounding, and the sums are float32.
    np.testing.assert_allclose(found.astype(float), exact, atol=0.5 + 1e-3)


STARTS = "pong", [b"abc", b"\0\1"]


@given(st.lists(st.binary(min_size=1), min_size=1, max_size=5))
def test_there_and_back(tmp_path_factory, states):
    path = tmp_path_factory.mktemp("states") / "new" / "pong"
    for place in (path, path.with_name("again.npz")):  # the same states give the same bytes
        save_states(place, "pong", states)
    assert load_states(path) == ("pong", states)
    assert path.read_bytes() == place.read_bytes()


def assert_refused(path, match):
    with pytest.raises(ValueError, match=match) as caught:
        load_states(path)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "pong.npz"
    assert_refused(path, "is not a file of start states: retrax record-states makes one")
    path.write_bytes(b"PK, or not")
    assert_refused(path, "is damaged, or not a file of start states")
    np.savez(path, game="pong")
    assert_refused(path, "is damaged, or not a file of start states")
    save_states(path, *STARTS)
    path.write_bytes(path.read_bytes()[:-30])
    assert_refused(path, "is damaged")


@pytest.mark.parametrize("lengths", [[], [3], [3, 3], [5, 0], [6, -1]])
def test_lengths_that_do_not_fit_are_refused(tmp_path, lengths):
    path = tmp_path / "pong.npz"
    states = np.frombuffer(b"abcde", np.uint8)
    np.savez(path, game="pong", lengths=np.array(lengths, np.int64), states=states)
    assert_refused(path, "the lengths of its states do not match its contents")
