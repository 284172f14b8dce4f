import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import FIRST, LAST, MID, history, random_actions

from retrax.environments.deep_sea import DeepSea
from retrax.environments.tiny import Catch, Memory


def catch_policy(observation, state):
    """Moves towards the ball's column, which the flattened board shows. Needs no state."""
    boards = observation.reshape(-1, Catch.ROWS, Catch.COLUMNS)
    ball = boards[:, :-1].sum(axis=1).argmax(axis=1)
    paddle = boards[:, -1].argmax(axis=1)
    return np.sign(ball - paddle) + 1, state


def memory_policy(observation, state):
    """Keeps the cue from the observation that shows one."""
    cue = observation[:, 0]
    state = np.where(cue != 0, cue, state)
    return (state > 0).astype(np.int32), state


def returns(environment, policy, steps):
    """Returns of the episodes that end within `steps`, in order of time, then environment."""
    state, total, ended = np.zeros(environment.num_envs), np.zeros(environment.num_envs), []
    timestep = environment.reset()
    for _ in range(steps):
        actions, state = policy(timestep.observation, state)
        timestep = environment.step(actions)
        total = np.where(timestep.step_type == FIRST, 0, total + timestep.reward)
        ended += total[timestep.step_type == LAST].tolist()
    return ended


# Without its television nothing of deep_sea would depend on the seed.
MAKERS = [Catch, Memory, functools.partial(DeepSea, screen=3)]


@pytest.mark.parametrize(("make", "policy"), [(Catch, catch_policy), (Memory, memory_policy)])
def test_an_optimal_policy_gets_exactly_the_optimal_return(make, policy):
    ended = returns(make(num_envs=16, seed=3), policy, 120)
    assert len(ended) >= 160
    assert np.mean(ended) == make.optimal_return


@settings(max_examples=20, deadline=None)
@given(length=st.integers(1, 30), seed=st.integers(0, 2**40))
def test_memory_is_solved_at_every_length(length, seed):
    environment = Memory(length=length, num_envs=2, seed=seed)
    ended = returns(environment, memory_policy, 3 * (length + 2))
    assert ended == [1.0] * 6


def test_catch_by_hand():
    environment = Catch(num_envs=1, seed=0)
    timestep = environment.reset()
    board = timestep.observation.reshape(Catch.ROWS, Catch.COLUMNS)
    (ball,) = np.flatnonzero(board[0])
    expected = np.zeros((10, 5))
    expected[0, ball] = expected[9, 2] = 1
    np.testing.assert_array_equal(board, expected)
    for t in range(1, 10):  # to the left: the paddle is at 1, then 0, where the wall stops it
        timestep = environment.step(np.array([0]))
        expected = np.zeros((10, 5))
        expected[t, ball] = expected[9, max(2 - t, 0)] = 1
        np.testing.assert_array_equal(timestep.observation.reshape(10, 5), expected)
        assert timestep.step_type[0] == (LAST if t == 9 else MID)
        assert timestep.discount[0] == (0 if t == 9 else 1)
    assert timestep.reward[0] == (1 if ball == 0 else -1)
    assert environment.step(np.array([0])).step_type[0] == FIRST


@pytest.mark.parametrize(("action", "column"), [(0, 0), (1, 2), (2, 4)])
def test_catch_pays_one_exactly_where_the_paddle_waits(action, column):
    environment = Catch(num_envs=40, seed=1)
    balls = environment.reset().observation.reshape(40, 10, 5)[:, 0].argmax(axis=1)
    for _ in range(9):
        timestep = environment.step(np.full(40, action))
    assert set(balls) == {0, 1, 2, 3, 4}
    np.testing.assert_array_equal(timestep.reward, np.where(balls == column, 1, -1))


def test_memory_by_hand():
    environment = Memory(length=3, num_envs=1, seed=0)
    timestep = environment.reset()
    cue = timestep.observation[0, 0]
    assert cue in (-1, 1)
    for expected in ([cue, 0], [0, 0], [0, 0], [0, 1]):
        np.testing.assert_array_equal(timestep.observation[0], expected)
        assert timestep.reward[0] == 0
        assert timestep.discount[0] == 1
        timestep = environment.step(np.array([int(cue < 0)]))  # wrong, but it counts at the query
    assert timestep.step_type[0] == LAST
    assert timestep.reward[0] == -1
    assert timestep.discount[0] == 0
    np.testing.assert_array_equal(timestep.observation[0], [0, 0])


@pytest.mark.parametrize("answer", [0, 1])
def test_a_policy_without_memory_is_at_chance(answer):
    # All that it can do is to answer always alike, or by a coin: right when the cue happens to fit.
    ended = returns(Memory(num_envs=100, seed=5), lambda o, s: (np.full(100, answer), s), 12 * 40)
    assert len(ended) == 4000
    assert abs(np.mean(ended)) < 4 / np.sqrt(4000)


def test_catch_without_sight_is_at_one_in_five():
    ended = returns(Catch(num_envs=100, seed=5), lambda o, s: (np.ones(100, int), s), 10 * 40)
    assert len(ended) == 4000
    assert abs(np.mean(ended) - (-0.6)) < 4 * 0.8 / np.sqrt(4000)


@settings(max_examples=25, deadline=None)
@given(make=st.sampled_from(MAKERS), seed=st.integers(0, 2**40), e=st.integers(0, 4), seq=st.data())
def test_environment_e_depends_on_neither_the_others_nor_their_number(make, seed, e, seq):
    big, small = make(num_envs=5, seed=seed), make(num_envs=e + 1, seed=seed)
    actions = random_actions(big, 40, seq.draw(st.integers(0, 1000)))
    other = random_actions(big, 40, 7)
    other[:, e] = actions[:, e]
    one, two = history(big, actions), history(small, other[:, : e + 1])
    for name in one:
        np.testing.assert_array_equal(one[name][:, e], two[name][:, e])


@pytest.mark.parametrize("make", MAKERS)
def test_seeds_are_reproducible_and_different(make):
    actions = random_actions(make(num_envs=4), 200)
    one, two, three = (history(make(num_envs=4, seed=s), actions) for s in (1, 1, 2))
    np.testing.assert_array_equal(one["observation"], two["observation"])
    assert (one["observation"] != three["observation"]).any()
    assert (one["observation"][:, 0] != one["observation"][:, 1]).any()
    # Environment 1 of one seed is not environment 0 of the next seed.
    assert (one["observation"][:, 1] != three["observation"][:, 0]).any()


@pytest.mark.parametrize("make", MAKERS)
def test_the_step_after_a_last_one_ignores_the_action(make):
    one, two = make(num_envs=2, seed=4), make(num_envs=2, seed=4)
    for environment in (one, two):
        timestep = environment.reset()
        while not (timestep.step_type == LAST).all():
            timestep = environment.step(np.zeros(2, int))
    a, b = one.step(np.zeros(2, int)), two.step(np.ones(2, int))
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left, right)
    assert (a.step_type == FIRST).all()


@pytest.mark.parametrize("make", MAKERS)
def test_reset_in_the_middle_starts_an_episode_and_step_without_reset_does_too(make):
    environment = make(num_envs=2, seed=4)
    began = environment.step(np.zeros(2, int))
    assert (began.step_type == FIRST).all()
    environment.step(np.zeros(2, int))
    again = environment.reset()
    assert (again.step_type == FIRST).all()
    assert (again.reward == 0).all()
    assert (again.discount == 1).all()


def test_environments_end_at_their_own_times():
    environment = Memory(length=2, num_envs=2, seed=0)
    environment.reset()
    environment._time[0] = 2  # this one is at its query already
    kinds = [environment.step(np.zeros(2, int)).step_type.tolist() for _ in range(6)]
    # Each episode: 3 actions, then the first step of the next.
    assert [k[0] for k in kinds] == [LAST, FIRST, MID, MID, LAST, FIRST]
    assert [k[1] for k in kinds] == [MID, MID, LAST, FIRST, MID, MID]


def test_catch_is_drawn_in_white_on_black():
    environment = Catch(seed=0)
    environment.reset()
    picture = environment.render()
    assert picture.shape == (160, 80, 3)
    assert picture.dtype == np.uint8
    assert (picture == 255).sum() == 2 * 16 * 16 * 3
    np.testing.assert_array_equal(picture[-8, 40], [255, 255, 255])  # the paddle, in the middle


def test_memory_is_drawn_as_two_squares():
    environment = Memory(length=1, num_envs=1, seed=0)
    cue = environment.reset().observation[0, 0]
    picture = environment.render()
    assert picture.shape == (32, 64, 3)
    np.testing.assert_array_equal(picture[16, 16], [0, 255, 0] if cue > 0 else [255, 0, 0])
    np.testing.assert_array_equal(picture[16, 48], [0, 0, 0])
    environment.step(np.array([0]))
    np.testing.assert_array_equal(environment.render()[16, 48], [255, 255, 255])
    np.testing.assert_array_equal(environment.render()[16, 16], [0, 0, 0])


def test_a_length_below_one_is_refused():
    with pytest.raises(ValueError, match="length must be at least 1, got 0"):
        Memory(length=0)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(3, int), r"actions must be \[2\], got \[3\]"),
        (np.zeros((2, 1), int), r"actions must be \[2\], got \[2, 1\]"),
        (np.zeros(2), "actions must be integers, got float64"),
        (np.array([0, 3]), "action of environment 1 must be 0 to 2, got 3"),
        (np.array([-1, 3]), "action of environment 0 must be 0 to 2, got -1"),
    ],
)
def test_wrong_actions_are_refused(actions, message):
    environment = Catch(num_envs=2)
    environment.reset()
    with pytest.raises(ValueError, match=message):
        environment.step(actions)


@pytest.mark.parametrize("size", [2, 3, 10, 15])
@pytest.mark.parametrize("action", [0, 1])
def test_one_action_everywhere_does_not_find_the_treasure(size, action):
    for mapping_seed in range(20):
        environment = DeepSea(size=size, mapping_seed=mapping_seed)
        environment.reset()
        rewards = [environment.step(np.array([action])).reward[0] for _ in range(size)]
        assert max(rewards) <= 0
