import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import FIRST, LAST, MID, play

from retrax.environments import make
from retrax.environments.deep_sea import DeepSea


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


@settings(max_examples=30, deadline=None)
@given(
    size=st.integers(2, 7),
    mapping_seed=st.none() | st.integers(0, 100),
    num_envs=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_deep_sea_equals_a_loop(size, mapping_seed, num_envs, seed):
    environment = DeepSea(size=size, mapping_seed=mapping_seed, num_envs=num_envs)
    actions = np.random.default_rng(seed).integers(2, size=(25, num_envs))
    steps = list(play(environment, actions))
    for e in range(num_envs):
        wanted = sea_by_hand(size, environment.right.tolist(), actions[:, e].tolist())
        for found, (kind, reward, row, column) in zip(steps, wanted, strict=True):
            cells = np.zeros((size + 1, size))
            cells[row, column] = 1
            np.testing.assert_array_equal(found.observation[e], cells[:-1].ravel())
            assert found.step_type[e] == kind
            assert found.discount[e] == (0 if kind == LAST else 1)
            assert found.reward[e] == np.float32(reward)


@pytest.mark.parametrize("size", [2, 5, 10])
@pytest.mark.parametrize("mapping_seed", [None, 0, 3])
def test_deep_sea_pays_exactly_one_of_all_sequences(size, mapping_seed):
    sequences = np.array(list(itertools.product((0, 1), repeat=size)))
    environment = DeepSea(size=size, mapping_seed=mapping_seed, num_envs=len(sequences))
    steps = list(play(environment, sequences.T))
    assert (steps[-1].step_type == LAST).all()
    returns = sum(step.reward.astype(np.float64) for step in steps)
    best = np.sort(returns)[::-1]
    assert best[0] == pytest.approx(environment.optimal_return, abs=1e-6)
    assert best[0] == pytest.approx(0.99, abs=1e-6)
    assert best[1] == 0  # never to the right
    assert (returns > 0).sum() == 1
    assert returns.mean() == pytest.approx(2.0**-size - 0.005, abs=1e-6)  # uniformly random play


def test_the_mapping_is_the_same_whatever_the_seed_and_the_number():
    def cells(**kwargs):
        return DeepSea(**kwargs).right

    np.testing.assert_array_equal(cells(), cells(seed=5, num_envs=3))
    assert (cells() != cells(mapping_seed=1)).any()
    assert (cells(mapping_seed=None) == 1).all()
    assert 0.4 < cells(size=50).mean() < 0.6


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
    environment = DeepSea(size=6, mapping_seed=None, screen=3, remote=True, num_envs=2)
    actions = np.random.default_rng(0).integers(2, size=(40, 2))
    steps = list(play(environment, actions))
    for before, after, action in zip(steps[:-1], steps[1:], actions, strict=True):
        changed = (before.observation[:, 36:] != after.observation[:, 36:]).any(axis=1)
        np.testing.assert_array_equal(changed, (after.step_type == FIRST) | (action == 0))


def test_deep_sea_is_drawn():
    environment = DeepSea(size=4, screen=2, mapping_seed=None)
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


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"size": 1}, "DeepSea: size must be at least 2, got 1"),
        ({"mapping_seed": -1}, "mapping_seed must be None or at least 0, got -1"),
        ({"screen": -1}, "screen must be at least 0, got -1"),
        ({"length": 3}, "no switch length; its switches are: mapping_seed, remote, screen, size"),
    ],
)
def test_wrong_switches_are_refused(switches, message):
    with pytest.raises(ValueError, match=message):
        make("deep_sea", **switches)
