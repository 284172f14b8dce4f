"""Which moments of an episode are kept."""

import dm_env
import numpy as np
import pytest

from retrax.environments import check_environment
from retrax.environments.emulated_atari import EmulatedAtari
from retrax.evaluation.state_recorder import StateRecorder


class Scripted:
    """One environment whose episodes have the given lengths; a state is (episode, moment)."""

    num_envs = 1
    spec = None

    def __init__(self, lengths):
        self._lengths, self._episode = lengths, -1

    def reset(self):
        self._episode, self._time = self._episode + 1, 0
        return self._timestep()

    def step(self, actions):
        if self._time == self._length():
            return self.reset()
        self._time += 1
        return self._timestep()

    def emulator_state(self):
        return (self._episode, self._time)

    def _length(self):
        return self._lengths[self._episode % len(self._lengths)]

    def _timestep(self):
        kind = 0 if self._time == 0 else 2 if self._time == self._length() else 1
        return dm_env.TimeStep(np.array([kind]), None, None, None)


def record(lengths, episodes, seed=0):
    recorder = StateRecorder(Scripted(lengths), np.random.default_rng(seed))
    recorder.reset()
    while len(recorder.states) < episodes:
        recorder.step(np.zeros(1))
    return recorder.states


def test_one_state_of_each_episode_none_of_them_the_last():
    states = record([1, 4, 2], 30)
    assert [episode for episode, _ in states] == list(range(30))
    assert all(moment < [1, 4, 2][episode % 3] for episode, moment in states)


def test_each_moment_is_as_likely():
    moments = [moment for _, moment in record([5], 5000)]
    counts = np.bincount(moments, minlength=5)
    np.testing.assert_allclose(counts, 1000, atol=4 * np.sqrt(800))


def test_reset_forgets_the_episode_that_was_going_on():
    recorder = StateRecorder(Scripted([3, 2]), np.random.default_rng(0))
    recorder.reset()
    recorder.step(np.zeros(1))
    recorder.reset()
    while not recorder.states:
        recorder.step(np.zeros(1))
    assert recorder.states[0][0] == 1


def test_the_same_generator_keeps_the_same():
    assert record([7], 20, seed=3) == record([7], 20, seed=3) != record([7], 20, seed=4)


def test_states_of_a_real_game_can_be_begun_in():
    environment = EmulatedAtari("pong", max_frames=80, seed=1)
    recorder = StateRecorder(environment, np.random.default_rng(0))
    check_environment(recorder, steps=70)
    assert len(recorder.states) == 3
    assert len(set(recorder.states)) == 3
    starts = EmulatedAtari("pong", states=recorder.states, num_envs=3).reset().observation
    assert len(np.unique(starts.reshape(3, -1), axis=0)) > 1
    assert recorder.render().shape == (210, 160, 3)
    recorder.close()


def test_several_environments_are_refused():
    with pytest.raises(ValueError, match="environment must be one, got 2"):
        StateRecorder(EmulatedAtari("pong", num_envs=2), np.random.default_rng(0))
