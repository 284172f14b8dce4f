"""Which states are recorded, of episodes of scripted lengths and of a real game."""

import dm_env
import numpy as np

from retrax.command.suite import StateRecorder
from retrax.environments.emulated_atari import EmulatedAtari


def record(lengths, episodes, seed=0):
    """(episode, moment) of each recorded state."""
    now = []
    recorder = StateRecorder(lambda: tuple(now), np.random.default_rng(seed))
    for episode in range(episodes):
        length = lengths[episode % len(lengths)]
        for moment in range(length + 1):
            now[:] = episode, moment
            kind = 0 if moment == 0 else 2 if moment == length else 1
            recorder(dm_env.TimeStep(np.array([kind]), None, None, None))
    return recorder.states


def test_one_state_of_each_episode_none_of_them_the_last():
    states = record([1, 4, 2], 30)
    assert [episode for episode, _ in states] == list(range(30))
    assert all(moment < [1, 4, 2][episode % 3] for episode, moment in states)


def test_each_moment_is_as_likely():
    moments = [moment for _, moment in record([5], 5000)]
    counts = np.bincount(moments, minlength=5)
    np.testing.assert_allclose(counts, 1000, atol=4 * np.sqrt(800))


def test_the_same_generator_keeps_the_same():
    assert record([7], 20, seed=3) == record([7], 20, seed=3) != record([7], 20, seed=4)


def test_states_of_a_real_game_can_be_begun_in():
    environment = EmulatedAtari("pong", max_frames=80, seed=1)
    recorder = StateRecorder(environment.emulator_state, np.random.default_rng(0))
    recorder(environment.reset())
    for _ in range(60):
        recorder(environment.step(np.zeros(1, np.int32)))
    assert len(set(recorder.states)) == len(recorder.states) == 3
    starts = EmulatedAtari("pong", states=recorder.states, num_envs=3).reset().observation
    assert len(np.unique(starts.reshape(3, -1), axis=0)) > 1
    environment.close()
