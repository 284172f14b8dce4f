"""Emulators of our own: ale-py's vectorised environment bit for bit, and starts from states."""

import ale_py
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from stepping import FIRST, LAST, MID, random_actions

from retrax.environments import check_environment
from retrax.environments.atari import Atari
from retrax.environments.emulated_atari import EmulatedAtari, area_resize


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


def test_it_keeps_the_promises_of_the_interface():
    check_environment(EmulatedAtari("pong", num_envs=2, max_frames=60, seed=5), steps=40)
    state = played("breakout").emulator_state()
    check_environment(EmulatedAtari("breakout", states=[state], frame_stack=2), steps=150)


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


def test_frames_are_counted_from_where_the_episode_begins():
    environment = EmulatedAtari("pong", states=[played().emulator_state()], max_frames=20)
    kinds = [environment.reset().step_type[0]]
    kinds += [environment.step(np.zeros(1, int)).step_type[0] for _ in range(6)]
    assert kinds == [FIRST, MID, MID, MID, MID, LAST, FIRST]


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


def test_smaller_pictures_by_hand():
    """Three columns to two: (2 a + b) / 3 and (b + 2 c) / 3."""
    picture = np.array([[30, 60, 90], [30, 60, 90]], np.uint8)
    np.testing.assert_array_equal(area_resize(picture, 1, 2), [[40, 80]])
    np.testing.assert_array_equal(area_resize(picture, 2, 3), picture)
