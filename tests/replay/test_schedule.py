"""The schedule of updates, step by step."""

import numpy as np
import pytest

from retrax.datatypes import ReplayConfig
from retrax.replay.schedule import UpdateSchedule


def make_schedule(seed=0, **changes):
    fields = {"min_rows": 10, "capacity": 1000, "batch_size": 4, **changes}
    return UpdateSchedule(ReplayConfig(**fields), num_envs=4, seed=seed)


def observe(schedule, steps, rounds=0):
    schedule.observe(steps=steps, rows=steps, sequences=steps, rounds=rounds)


def take(schedule):
    """All updates that are due now."""
    taken = []
    while due := schedule.due:
        taken.append(due)
        schedule.done()
    return taken


def test_a_steady_pace_by_hand():
    schedule = make_schedule(acting_steps_per_update=2.5)
    counts = []
    for steps in range(8, 22, 2):
        observe(schedule, steps, rounds=steps)
        counts.append(len(take(schedule)))
    assert schedule.learning_since == 10
    assert counts == [0, 0, 0, 1, 1, 1, 1]  # 2, 4, ... 10 steps since then, over 2.5
    assert schedule.updates == 4


@pytest.mark.parametrize("on_policy", [False, True])
def test_rounds_replay_in_calls_of_several_updates(on_policy):
    """What is left of a round waits; nothing is lost, and the draws are those of single updates."""
    schedule = make_schedule(
        3, pace="rounds", replay_ratio=4.0, on_policy=on_policy, updates_per_call=3
    )
    observe(schedule, 8, rounds=1)
    assert take(schedule) == ["newest"] * on_policy, "too few rows to replay"
    assert schedule.learning_since == (8 if on_policy else -1)
    draws = np.random.default_rng([3, 1])
    drawn, replayed, left = 0, 0, set()
    for rounds in range(2, 60):
        observe(schedule, 20 * rounds, rounds=rounds)
        taken = take(schedule)
        assert taken == ["newest"] * on_policy + ["replayed"] * (len(taken) - on_policy)
        drawn += draws.poisson(4.0)
        replayed += 3 * (len(taken) - on_policy)
        assert replayed == drawn // 3 * 3
        assert schedule.updates == replayed + rounds * on_policy
        left.add(drawn - replayed)
    assert left == {0, 1, 2}


@pytest.mark.parametrize(("left", "per_call"), [(0, 1), (1, 1), (3, 1), (1, 4), (2, 4)])
def test_a_restored_schedule_continues_identically(left, per_call):
    """In the middle of a round too."""
    fields = {"pace": "rounds", "replay_ratio": 6.0, "on_policy": True}
    fields["updates_per_call"] = per_call
    schedule, other = make_schedule(1, **fields), make_schedule(9, **fields)
    observe(schedule, 50, rounds=1)
    for _ in range(left):
        assert schedule.due
        schedule.done()
    counters = {"steps": 50, "updates": schedule.updates, "learning_since": schedule.learning_since}
    other.restore(schedule.state(), counters)
    for rounds in range(1, 20):
        for p in (schedule, other):
            observe(p, 50 + rounds, rounds=rounds)
        assert take(schedule) == take(other)
    assert schedule.updates == other.updates
