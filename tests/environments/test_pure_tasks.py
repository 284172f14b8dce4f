import itertools

import numpy as np
import pytest
from stepping import FIRST, LAST, MID, play

from retrax.environments import make
from retrax.environments.pure_tasks import PureCatch, PureDeepSea


def test_catch_by_hand():
    environment = make("catch", num_envs=1, seed=0)
    timestep = environment.reset()
    board = timestep.observation.reshape(PureCatch.ROWS, PureCatch.COLUMNS)
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
    environment = make("catch", num_envs=500, seed=1)
    balls = environment.reset().observation.reshape(500, 10, 5)[:, 0].argmax(axis=1)
    for _ in range(9):
        timestep = environment.step(np.full(500, action))
    np.testing.assert_allclose(np.bincount(balls), 100, atol=40)  # all starts are equally likely
    optimal = environment.pure.optimal_return
    np.testing.assert_array_equal(timestep.reward, np.where(balls == column, optimal, -1))


def test_memory_by_hand():
    environment = make("memory", length=3, num_envs=500, seed=0)
    timestep = environment.reset()
    cue = timestep.observation[:, 0]
    assert abs((cue == 1).sum() - 250) < 60
    for shown, query in ((cue, 0), (0, 0), (0, 0), (0, 1)):
        assert (timestep.observation[:, 0] == shown).all()
        assert (timestep.observation[:, 1] == query).all()
        assert (timestep.reward == 0).all()
        assert (timestep.discount == 1).all()
        even = np.arange(500) % 2 == 0  # those give the right answer; it counts at the query
        timestep = environment.step(((cue > 0) == even).astype(int))
    assert (timestep.step_type == LAST).all()
    optimal = environment.pure.optimal_return
    np.testing.assert_array_equal(timestep.reward, np.where(even, optimal, -1))
    assert (timestep.discount == 0).all()
    assert not timestep.observation.any()


def test_memory_is_drawn_as_two_squares():
    environment = make("memory", length=1, num_envs=1, seed=0)
    cue = environment.reset().observation[0, 0]
    picture = environment.render()
    assert picture.shape == (32, 64, 3)
    np.testing.assert_array_equal(picture[16, 16], [0, 255, 0] if cue > 0 else [255, 0, 0])
    np.testing.assert_array_equal(picture[16, 48], [0, 0, 0])
    environment.step(np.array([0]))
    np.testing.assert_array_equal(environment.render()[16, [16, 48]], [[0] * 3, [255] * 3])


# Deep sea


def sea_by_hand(size, right, actions):
    """One environment's (kind, reward, row, column), with a loop and without an array."""
    row, column, steps = None, None, []
    for action in [None, *actions]:
        if row in (None, size):
            row = column = 0
            steps.append((FIRST, 0.0, row, column))
            continue
        reward = 0.0
        if action == right[row][column]:
            reward = -0.01 / size
            if (row, column) == (size - 1, size - 1):
                reward += 1.0
            column = min(column + 1, size - 1)
        else:
            column = max(column - 1, 0)
        row += 1
        steps.append((LAST if row == size else MID, reward, row, column))
    return steps


@pytest.mark.parametrize("size", [2, 5, 8])
@pytest.mark.parametrize("mapping_seed", [None, 3])
def test_deep_sea_equals_a_loop_and_pays_exactly_one_of_all_sequences(size, mapping_seed):
    sequences = np.array(list(itertools.product((0, 1), repeat=size)))
    environment = make("deep_sea", size=size, mapping_seed=mapping_seed, num_envs=len(sequences))
    again = np.roll(sequences, 1, axis=0)  # in a second episode
    actions = np.concatenate([sequences, again, again], axis=1)
    steps = list(play(environment, actions.T))
    for e, each in enumerate(actions.tolist()):
        wanted = sea_by_hand(size, environment.pure.right.tolist(), each)
        for found, (kind, reward, row, column) in zip(steps, wanted, strict=True):
            cells = np.zeros((size + 1, size))
            cells[row, column] = 1
            np.testing.assert_array_equal(found.observation[e], cells[:-1].ravel())
            assert found.step_type[e] == kind
            assert found.discount[e] == (0 if kind == LAST else 1)
            assert found.reward[e] == np.float32(reward)
    returns = sum(step.reward.astype(np.float64) for step in steps[: size + 1])
    best = np.sort(returns)[::-1]
    assert best[0] == pytest.approx(environment.pure.optimal_return, abs=1e-6)
    assert best[0] == pytest.approx(0.99, abs=1e-6)
    assert best[1] == 0  # never to the right
    assert (returns > 0).sum() == 1
    assert returns.mean() == pytest.approx(2.0**-size - 0.005, abs=1e-6)  # uniformly random play


def test_the_mapping_is_the_same_whatever_the_seed_and_the_number():
    def cells(**kwargs):
        return make("deep_sea", **kwargs).pure.right

    np.testing.assert_array_equal(cells(), cells(seed=5, num_envs=3))
    assert (cells() != cells(mapping_seed=1)).any()
    assert (cells(mapping_seed=None) == 1).all()
    assert 0.4 < cells(size=50).mean() < 0.6
    for size, seed in itertools.product((2, 3, 10, 15), range(20)):
        way = np.diagonal(PureDeepSea(size, seed).right)  # one action everywhere does not find it
        assert way.sum() in (size // 2, size - size // 2)


def test_the_television_shows_new_noise_and_changes_nothing_else():
    quiet, noisy = make("deep_sea", num_envs=2), make("noisy_deep_sea", num_envs=2)
    actions = np.random.default_rng(0).integers(2, size=(40, 2))
    screens = []
    for one, two in zip(play(quiet, actions), play(noisy, actions), strict=True):
        np.testing.assert_array_equal(one.observation, two.observation[:, :100])
        np.testing.assert_array_equal(one.reward, two.reward)
        np.testing.assert_array_equal(one.step_type, two.step_type)
        screens.append(two.observation[:, 100:])
    screens = np.stack(screens)
    assert screens.shape == (41, 2, 16)
    assert len(np.unique(screens)) > 41 * 2 * 16 - 5  # hardly any number twice
    assert ((screens >= 0) & (screens < 1)).all()
    assert abs(screens.mean() - 0.5) < 4 / np.sqrt(12 * screens.size)


def test_the_remote_control_changes_the_picture_on_moves_to_the_left_only():
    environment = make("deep_sea", size=6, mapping_seed=None, screen=3, remote=True, num_envs=2)
    actions = np.random.default_rng(0).integers(2, size=(40, 2))
    steps = list(play(environment, actions))
    for before, after, action in zip(steps[:-1], steps[1:], actions, strict=True):
        changed = (before.observation[:, 36:] != after.observation[:, 36:]).any(axis=1)
        np.testing.assert_array_equal(changed, (after.step_type == FIRST) | (action == 0))


def test_deep_sea_is_drawn():
    environment = make("deep_sea", size=4, screen=2, mapping_seed=None)
    environment.reset()
    environment.step(np.array([1]))
    picture = environment.render()
    assert picture.shape == (80, 64, 3)
    np.testing.assert_array_equal(picture[24, 24], [255, 255, 255])  # row 1, column 1
    np.testing.assert_array_equal(picture[56, 56], [255, 255, 0])
    np.testing.assert_array_equal(picture[8, 8], [0, 0, 0])
    assert len(np.unique(picture[72])) == 2
    for _ in range(3):
        environment.step(np.array([1]))
    np.testing.assert_array_equal(environment.render()[56, 56], [255, 255, 0])  # the diver has left
