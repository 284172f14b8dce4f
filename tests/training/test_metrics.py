"""Returns of running episodes, means between log rows, rates, an agent's advice, multiples."""

import dm_env
import numpy as np
import pytest

from retrax.training.actor import RunningReturns
from retrax.training.learner import MetricsAccumulator, Rate
from retrax.training.recorder import EqualReturns
from retrax.training.snapshots import next_multiple

FIRST, MID, LAST = dm_env.StepType


def steps(types, rewards):
    types = np.array(types, np.int32)
    return dm_env.TimeStep(types, np.array(rewards, np.float32), np.ones(len(types)), None)


def test_returns_and_lengths_by_hand():
    running = RunningReturns(2)
    assert [x.tolist() for x in running.add(steps([FIRST, FIRST], [9, 9]))] == [[], [], []]
    assert [x.tolist() for x in running.add(steps([MID, LAST], [1, 2]))] == [[1], [2.0], [1]]
    assert [x.tolist() for x in running.add(steps([LAST, FIRST], [3, 9]))] == [[0], [4.0], [2]]


def test_means_by_hand():
    metrics = MetricsAccumulator()
    assert metrics.flush() == {}
    metrics.add_episodes({"return": [1.0, 2.0], "length": []})
    metrics.add_episodes({"return": [6.0]}, prefix="actor_0_")
    metrics.add({"loss": np.float32(0.5)}, 2)
    metrics.add({"loss": np.float32(2.0)}, 4)
    assert metrics.flush() == {
        "episode_return": 1.5,
        "actor_0_episode_return": 6.0,
        "loss": (2 * 0.5 + 4 * 2.0) / 6,
    }
    assert metrics.flush() == {}


def test_rates_are_means_over_the_last_seconds():
    rate = Rate()
    assert rate.per_second() == 0.0
    rate.add(0.0, 100)
    assert rate.per_second() == 0.0
    rate.add(1.0, 110)
    assert rate.per_second() == 10.0
    rate.add(6.0, 210)
    assert rate.per_second() == 20.0, "the first count is older than five seconds"


@pytest.mark.parametrize(
    ("start", "returns", "rows"),
    [
        (0, [10 * [-200.0], [], 10 * [-200.0], [-200.0]], [3]),
        (6, 4 * [10 * [-200.0]], [2]),
        (0, [8 * [-200.0], [], [-200.0], 11 * [-200.0]], [4]),  # nine may be equal by chance
        (0, [20 * [-200.0], [], [-199.0], 20 * [-200.0]], []),
        (0, 4 * [[-1.0, 1.0]], []),
        (50, 4 * [20 * [-200.0]], []),  # of a run that is resumed after its first tenth
    ],
)
def test_equal_returns_of_the_first_tenth_are_told_once(start, returns, rows):
    equal, found = EqualReturns(100, start=start), []
    for row, values in enumerate([*returns, [-200.0]], start=1):
        if sentence := equal.sentence(start + 3.5 * row, values):
            found.append(row)
            assert "returned -200:" in sentence
    assert found == rows


def test_multiples_by_hand():
    assert [next_multiple(value, 5) for value in (0, 4, 5, 9, 10)] == [5, 5, 10, 10, 15]
