"""Which updates are due, step by step."""

import jax
import numpy as np
import pytest

from retrax.datatypes import ReplayConfig, SequenceSpec
from retrax.environments import make
from retrax.replay.paced import PacedStore
from retrax.replay.pacing import Pacing, mean_acting_steps_per_update


def make_pacing(seed=0, **changes):
    fields = {"min_rows": 10, "capacity": 1000, **changes}
    return Pacing(ReplayConfig(**fields), seed=seed)


def observe(pacing, steps, rounds=0):
    pacing.observe(steps=steps, rows=steps, sequences=steps, rounds=rounds)


def take(pacing):
    """All updates that are due now."""
    taken = []
    while due := pacing.due:
        taken.append(due)
        pacing.done()
    return taken


def test_a_steady_pace_by_hand():
    pacing = make_pacing(acting_steps_per_update=2.5)
    counts = []
    for steps in range(8, 22, 2):
        observe(pacing, steps, rounds=steps)
        counts.append(len(take(pacing)))
    assert pacing.learning_since == 10
    assert counts == [0, 0, 0, 1, 1, 1, 1]  # 2, 4, ... 10 steps since then, over 2.5
    assert pacing.updates == 4


def test_calls_of_several_updates_wait_until_all_of_them_are_due():
    pacing = make_pacing(acting_steps_per_update=2.0, updates_per_call=3)
    counts = []
    for steps in range(10, 36, 2):
        observe(pacing, steps)
        counts.append(len(take(pacing)))
    assert counts == [0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1]
    assert pacing.updates == 12


def test_a_round_begins_on_policy_and_goes_on_with_replay():
    pacing = make_pacing(pace="rounds", replay_ratio=4.0, on_policy=True)
    observe(pacing, 4)
    assert take(pacing) == []
    assert pacing.learning_since == -1
    observe(pacing, 8, rounds=1)
    assert take(pacing) == ["newest"]  # too few rows to replay
    assert pacing.learning_since == 8
    observe(pacing, 12, rounds=1)
    assert take(pacing) == [], "no new segments"
    kinds = []
    for rounds in range(2, 12):
        observe(pacing, 8 * rounds, rounds=rounds)
        taken = take(pacing)
        assert taken[0] == "newest"
        kinds += taken[1:]
    assert set(kinds) == {"replayed"}
    assert pacing.updates == 11 + len(kinds)


def test_erratum_14_replays_are_drawn_from_a_poisson_distribution():
    pacing = make_pacing(pace="rounds", replay_ratio=4.0)
    counts = []
    for rounds in range(1, 2001):
        observe(pacing, 20 * rounds, rounds=rounds)
        counts.append(len(take(pacing)))
    # The variance of a Poisson distribution is its mean; a fixed count would have none.
    assert abs(np.mean(counts) - 4) < 4 * 2 / np.sqrt(2000)
    assert abs(np.var(counts) - 4) < 0.6
    assert min(counts) == 0


def test_ratio_zero_never_replays():
    pacing = make_pacing(pace="rounds", replay_ratio=0.0, on_policy=True)
    for rounds in range(1, 50):
        observe(pacing, 100 * rounds, rounds=rounds)
        assert take(pacing) == ["newest"]


def test_the_same_seed_draws_the_same():
    def counts(seed):
        pacing, found = make_pacing(seed, pace="rounds", replay_ratio=4.0), []
        for rounds in range(1, 30):
            observe(pacing, 100 * rounds, rounds=rounds)
            found.append(len(take(pacing)))
        return found

    assert counts(3) == counts(3)
    assert counts(3) != counts(4)


@pytest.mark.parametrize("left", [0, 1, 3])
def test_state_and_restore_go_on_as_if_nothing_had_happened(left):
    """In the middle of a round too."""
    fields = {"pace": "rounds", "replay_ratio": 6.0, "on_policy": True}
    pacing, other = make_pacing(1, **fields), make_pacing(9, **fields)
    observe(pacing, 50, rounds=1)
    for _ in range(left):
        pacing.done()
    counters = {
        "steps": 50,
        "updates": pacing.updates,
        "learning_since": pacing.learning_since,
    }
    other.restore(pacing.state(), counters)
    for rounds in range(1, 20):
        for p in (pacing, other):
            observe(p, 50 + rounds, rounds=rounds)
        assert take(pacing) == take(other)
    assert pacing.updates == other.updates


def test_mean_pace_by_hand():
    steady = ReplayConfig(acting_steps_per_update=3.0)
    assert mean_acting_steps_per_update(steady, period=20, num_envs=16) == 3.0
    rounds = ReplayConfig(pace="rounds", replay_ratio=4.0)
    assert mean_acting_steps_per_update(rounds, period=20, num_envs=16) == 80.0


def paced_store(seed=0):
    environment = make("catch")
    replay = ReplayConfig(capacity=100, min_rows=1, batch_size=2, pace="rounds", on_policy=True)
    sequence = SequenceSpec(length=4, period=3)
    return PacedStore(environment.spec, sequence, replay, num_environments=2, seed=seed)


def zero_rows(store, environments):
    shapes = store.store.sample_shapes()[0].rows
    return jax.tree.map(
        lambda x: np.zeros((len(environments), *x.shape[2:]), x.dtype), shapes
    ), np.asarray(environments)


def test_a_paced_store_serves_rounds_and_restores_in_the_middle_of_one():
    store = paced_store()
    for _ in range(4):
        store.add(*zero_rows(store, [0]))
    assert not store.ready, "the other environment has no segment yet"
    for _ in range(4):
        store.add(*zero_rows(store, [1]))
    keys, sample = store.sample()
    assert keys[1].tolist() == [0, 0], "the newest of each environment"
    assert sample.weights.tolist() == [1.0, 1.0]
    for _ in range(30):
        store.add(*zero_rows(store, [0, 1]))
    other = paced_store(seed=5)
    other.restore(store.state(), store.counters())
    for _ in range(3):
        assert store.ready == other.ready
        if store.ready:
            np.testing.assert_array_equal(store.sample()[0], other.sample()[0])
        for each in (store, other):
            each.add(*zero_rows(each, [0, 1]))
    assert store.counters() == other.counters()
