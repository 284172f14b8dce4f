"""The replay of one process: schedule and store together."""

import jax
import numpy as np
import pytest
from dm_env import specs

from retrax.datatypes import EnvironmentSpec
from retrax.replay import LocalReplay, ReplayConfig, SequenceSpec

SPEC = EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(3))
ROUNDS = {"pace": "rounds", "on_policy": True}


def make_replay(seed=0, num_envs=2, length=4, **changes):
    config = ReplayConfig(**{"capacity": 100, "min_rows": 1, "batch_size": 2, **changes})
    sequence = SequenceSpec(length=length, period=3)
    return LocalReplay(SPEC, sequence, config, num_envs=num_envs, seed=seed)


def zero_rows(replay, num_rows=2, last=False):
    rows = jax.tree.map(
        lambda x: np.zeros((num_rows, *x.shape[2:]), x.dtype), replay.shapes[0].rows
    )
    return rows._replace(is_last=np.full(num_rows, last))


def counters(replay, updates):
    status = replay.status()
    return {"steps": status.steps, "updates": updates, "learning_since": status.learning_since}


def test_a_round_waits_for_every_environment_and_begins_with_the_newest_sequences():
    replay = make_replay(**ROUNDS)
    for _ in range(4):
        replay.add(zero_rows(replay, 1), np.array([0]))
    assert replay.sample() is None, "the other environment has no sequence yet"
    for _ in range(4):
        replay.add(zero_rows(replay, 1), np.array([1]))
    keys, sample, _ = replay.sample()
    assert keys[:2].tolist() == [[0, 16], [0, 0]], "first slot and start of each environment"
    assert sample.weights.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("num_envs", [1, 8])
@pytest.mark.parametrize("on_policy", [True, False])
def test_transitions_are_replayed_as_often_as_the_ratio_says(num_envs, on_policy):
    replay = make_replay(
        num_envs=num_envs,
        batch_size=16,
        pace="rounds",
        replay_ratio=4.0,
        on_policy=on_policy,
        capacity_per_environment=True,
    )
    rows = zero_rows(replay, num_envs)
    replayed, newest, rounds = 0, 0, 1600 // num_envs
    for _ in range(3 * rounds + 1):  # segments of three transitions share a row
        replay.add(rows)
        drawn = []
        while (batch := replay.sample()) is not None:
            drawn.append(len(batch[1].weights))
        newest += sum(drawn[:on_policy])
        replayed += sum(drawn[on_policy:])
    segments = rounds * num_envs
    assert newest == (segments if on_policy else 0)
    deviation = 16 * np.sqrt(4 * segments / 16) / segments  # of a Poisson number of batches
    assert abs(replayed / segments - 4) < 4 * deviation


@pytest.mark.parametrize("num_envs", [1, 2, 8, 16])
def test_a_capacity_for_each_environment(num_envs):
    replay = make_replay(num_envs=num_envs, capacity=60, capacity_per_environment=True)
    assert replay.store.capacity == 60 * num_envs
    for _ in range(100):
        replay.add(zero_rows(replay, num_envs))
    assert replay.status().num_rows == 60 * num_envs


def test_steps_are_the_rows_that_are_not_last():
    replay = make_replay()
    replay.add(zero_rows(replay))
    replay.add(zero_rows(replay, last=True))
    replay.add(zero_rows(replay, 1), np.array([1]))
    status = replay.status()
    assert (status.steps, status.num_rows, status.new_priority) == (3, 5, 1.0)
    assert status.learning_since == -1
    for _ in range(3):
        replay.add(zero_rows(replay))
    assert replay.status().learning_since == 5
    assert replay.status().num_sequences == 2


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({"length": 3}, "length 4, and the config has 3"),
        ({"selector": "uniform"}, "selector proportional, and the config has uniform"),
    ],
)
def test_rows_that_were_cut_or_selected_in_another_way_are_refused(changes, differing):
    replay = make_replay(selector="proportional")
    other = make_replay(**{"selector": "proportional", **changes})
    for _ in range(5):
        replay.add(zero_rows(replay))
    with pytest.raises(ValueError, match=f"the stored rows have {differing}"):
        other.restore(replay.state(), counters(replay, 0))
    assert other.store.num_rows == 0


@pytest.mark.parametrize("cut", [False, True])
def test_restored_episodes_go_on_until_they_are_cut(cut):
    replay, other = make_replay(), make_replay()
    for _ in range(5):
        replay.add(zero_rows(replay))
    other.restore(replay.state(), counters(replay, 0))
    if cut:
        other.cut()
    rows, _ = other.store.read(np.array([0]))
    assert not rows.is_last.any()
    for _ in range(2):
        other.add(zero_rows(other))
    rows, _ = other.store.read(np.array([1]))  # rows 3 to 6: the restore was after row 4
    assert rows.is_last.tolist() == [[False, cut, False, False]]


def test_a_writer_adds_the_rows_of_its_environments():
    replay = make_replay(num_envs=3)
    writer = replay.writer([2, 0])
    rows = zero_rows(replay)._replace(reward=np.array([2.0, 0.5], np.float32))
    for _ in range(4):
        writer.write(rows, new_priority=7.0)
    writer.close()
    assert replay.store.state()["heads"].tolist() == [4, 0, 4]
    assert replay.status().num_sequences == 2
    rows, _ = replay.store.read(np.array([0, 22]))  # the first slots of environments 0 and 2
    assert rows.reward.tolist() == [[0.5] * 4, [2.0] * 4]


@pytest.mark.parametrize(
    ("selector", "starts"), [("proportional", [12, -1, 6]), ("contextual", [-1, -1, 6])]
)
def test_priorities_of_overwritten_sequences_are_ignored(selector, starts):
    replay = make_replay(capacity=12, num_envs=1, selector=selector, acting_steps_per_update=1e-3)
    for _ in range(12):
        replay.add(zero_rows(replay, 1))
    slots = np.arange(3)
    keys = np.stack([slots, replay.store.starts(slots)])
    assert keys[1].tolist() == [0, 3, 6]
    for _ in range(4):  # overwrites the sequences of slots 0 and 1
        replay.add(zero_rows(replay, 1))
    assert replay.store.starts(slots).tolist() == starts
    replay.set_priorities(keys, np.array([9.0, 8.0, 5.0]))
    selector = replay.state()["selector"]
    assert 5.0 in selector["priorities"]
    assert not {9.0, 8.0} & set(selector["priorities"].tolist())
    for wrong in (np.nan, np.inf, -1.0):
        with pytest.raises(ValueError, match="priorities must be finite, at least 0"):
            replay.set_priorities(keys, np.array([wrong, 1.0, 1.0]))


def test_the_age_is_the_time_since_a_sequences_first_row():
    """A row of one environment is as old as the steps of both that followed."""
    replay = make_replay(batch_size=32, acting_steps_per_update=1e-3)
    for _ in range(4):
        replay.add(zero_rows(replay))
    for _ in range(5):  # only the first environment goes on
        replay.add(zero_rows(replay, 1), np.array([0]))
    keys, *_ = replay.sample()
    # Slots of the first environment are 0 and 1, with rows 0 and 3 of 9; of the other 16, 0 of 4.
    assert set(map(tuple, keys.T.tolist())) == {(0, 0, 16), (1, 3, 10), (16, 0, 6)}
    assert replay.metrics(keys) == {"replay_age": np.mean(keys[2])}
