import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import FIRST, LAST, MID, play

from retrax.environments import make

STEPS = [(-1, 0), (0, 1), (1, 0), (0, -1)]  # up, right, down, left


def rooms(num_envs=1, seed=0, **switches):
    return make("grid_worlds:RandomCoin", num_envs=num_envs, seed=seed, **switches)


def coin_cells(observation, side):
    """Where agent and coin are seen: two pairs of row and column."""
    numbers = observation.reshape(4, side)
    assert (np.sort(numbers)[:, -1] == 1).all()
    assert (numbers.sum(axis=1) == 1).all()
    row, column, there, across = numbers.argmax(axis=1).tolist()
    return [(row, column), (there, across)]


@settings(max_examples=30, deadline=None)
@given(
    side=st.integers(2, 6),
    max_steps=st.integers(1, 12),
    num_envs=st.integers(1, 3),
    seed=st.integers(0, 2**40),
)
def test_random_coin_equals_a_loop(side, max_steps, num_envs, seed):
    environment = rooms(side=side, max_steps=max_steps, num_envs=num_envs, seed=seed)
    actions = np.random.default_rng(seed).integers(4, size=(40, num_envs))
    steps = list(play(environment, actions))
    for e in range(num_envs):
        kind = LAST
        for found, action in zip(steps, [None, *actions[:, e]], strict=True):
            seen = coin_cells(found.observation[e], side)
            if kind == LAST:
                agent, coin = seen
                assert agent != coin
                kind, reward, discount, time = FIRST, 0, 1, 0
            else:
                agent = tuple(
                    min(max(x + move, 0), side - 1)
                    for x, move in zip(agent, STEPS[action], strict=True)
                )
                time, reward = time + 1, int(agent == coin)
                kind = LAST if reward or time == max_steps else MID
                discount = 1 - reward
            assert seen == [agent, coin]
            fields = (found.step_type[e], found.reward[e], found.discount[e])
            assert fields == (kind, reward, discount)


def test_a_way_straight_to_the_coin_always_gets_it():
    environment = rooms(num_envs=8, seed=1)
    timestep = environment.reset()
    for _ in range(100):
        ways = []
        for e in range(8):
            (row, column), (there, across) = coin_cells(timestep.observation[e], 15)
            ways.append(
                (0 if there < row else 2) if there != row else (1 if across > column else 3)
            )
        timestep = environment.step(np.array(ways))
        last = timestep.step_type == LAST
        assert (timestep.reward[last] == 1).all()
        assert (timestep.discount[last] == 0).all()
    assert 15 + 15 < 200  # so it is in time from everywhere


def random_play_in_the_room(side, max_steps):
    """The mean return of uniformly random actions: dynamic programming over where the agent is."""
    cells = list(itertools.product(range(side), repeat=2))
    moves = np.zeros((len(cells), len(cells)))
    for row, column in cells:
        for down, right in STEPS:
            there = min(max(row + down, 0), side - 1), min(max(column + right, 0), side - 1)
            moves[row * side + column, there[0] * side + there[1]] += 0.25
    nowhere_near = 1 - np.eye(len(cells))  # by the coin's cell: the agent is in any other
    where, total = nowhere_near / (len(cells) - 1), 0.0
    for _ in range(max_steps):
        where = where @ moves
        total += np.trace(where) / len(cells)
        where *= nowhere_near
    return total


def test_random_play_in_the_room_is_as_documented():
    assert random_play_in_the_room(15, 200) == pytest.approx(0.295, abs=0.0005)


def test_random_play_in_a_small_room_has_its_exact_mean():
    wanted = random_play_in_the_room(4, 9)
    environment = rooms(side=4, max_steps=9, num_envs=200, seed=2)
    actions = np.random.default_rng(3).integers(4, size=(300, 200))
    steps = list(play(environment, actions))
    # The first episodes of each environment: those that end early would count too often.
    kinds, rewards = (np.stack([getattr(s, n) for s in steps]) for n in ("step_type", "reward"))
    first = [rewards[:, e][kinds[:, e] == LAST][:25] for e in range(200)]
    assert {len(episodes) for episodes in first} == {25}
    deviation = np.sqrt(wanted * (1 - wanted) / 5000)
    assert abs(np.mean(first) - wanted) < 4 * deviation


def test_the_coin_lies_everywhere():
    environment = rooms(side=3, max_steps=1, num_envs=500, seed=0)
    numbers = environment.reset().observation.reshape(500, 2, 2, 3)
    cells = np.einsum("eki,ekj->kij", numbers[:, :, 0], numbers[:, :, 1])
    assert (abs(cells - 500 / 9) < 4 * np.sqrt(500 / 9)).all()


def test_random_coin_is_drawn():
    environment = rooms(seed=0)
    (row, column), (there, across) = coin_cells(environment.reset().observation[0], 15)
    picture = environment.render()
    assert picture.shape == (240, 240, 3)
    np.testing.assert_array_equal(picture[16 * row, 16 * column], [255, 255, 255])
    np.testing.assert_array_equal(picture[16 * there, 16 * across], [255, 255, 0])
    assert (picture.reshape(-1, 3).any(axis=1)).sum() == 2 * 256


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"side": 1}, "RandomCoin: side must be at least 2, got 1"),
        ({"max_steps": 0}, "RandomCoin: max_steps must be at least 1, got 0"),
    ],
)
def test_wrong_switches_are_refused(switches, message):
    with pytest.raises(ValueError, match=message):
        rooms(**switches)
