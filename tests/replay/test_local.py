"""The replay of one process: sequences against a list of all rows ever added, and the schedule."""

import functools
import itertools

import jax
import numpy as np
import oracles
import pytest
from dm_env import specs
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_rows import SPEC, assert_equal, part, sample_now, sequence_spec, set_slots, stream

from retrax.datatypes import EnvironmentSpec
from retrax.replay import LocalReplay, ReplayConfig, SequenceSpec


class NaiveStore:
    """Every row of every environment at its position, and sequences found by looking at all."""

    def __init__(self, num_envs, capacity, spec):
        self.kept = capacity // num_envs // spec.period * spec.period
        self.spec = spec
        self.rows = [{} for _ in range(num_envs)]  # position -> row
        self.episode = [{} for _ in range(num_envs)]  # position -> number of the episode
        self.head = [0] * num_envs

    def add(self, row, e):
        row, position = jax.tree.map(lambda x: np.array(x[0]), row), self.head[e]
        before = self.episode[e].get(position - 1, -1)
        if row.is_first:
            before = max(self.episode[e].values(), default=-1) + 1
        self.rows[e][position], self.episode[e][position] = row, before
        self.head[e] = position + 1
        if row.is_last:
            self.cut(e)

    def cut(self, e):
        if row := self.rows[e].get(self.head[e] - 1):
            self.rows[e][self.head[e] - 1] = row._replace(is_last=np.array(True))
        if not self.spec.crosses_episodes:
            self.head[e] = -(-self.head[e] // self.spec.period) * self.spec.period

    def sequences(self):
        """(environment, start) of all complete sequences whose rows are all still kept."""
        found = set()
        for e, rows in enumerate(self.rows):
            for start in rows:
                needed = range(start - self.spec.frame_stack + 1, start + 1)
                kept = not any(position + self.kept in rows for position in needed)
                if start % self.spec.period == 0 and kept and self.complete(e, start):
                    found.add((e, start))
        return found

    def complete(self, e, start):
        wanted = range(start, start + self.spec.length)
        if all(p in self.rows[e] and self.belongs(e, start, p) for p in wanted):
            return True
        if self.spec.crosses_episodes or self.rows[e][start].is_last:
            return False
        return any(
            p in self.rows[e] and self.belongs(e, start, p) and self.rows[e][p].is_last
            for p in wanted
        )

    def belongs(self, e, start, position):
        same = self.episode[e][position] == self.episode[e][start]
        return self.spec.crosses_episodes or same

    def read(self, e, start):
        rows, mask = [], []
        template = self.rows[e][start]
        for p in range(start, start + self.spec.length):
            there = p in self.rows[e] and self.belongs(e, start, p)
            mask.append(there)
            row = self.rows[e][p] if there else jax.tree.map(np.zeros_like, template)
            rows.append(row._replace(observation=self.stack(e, p, there)))
        return jax.tree.map(lambda *x: np.stack(x), *rows), np.array(mask)

    def stack(self, e, position, there):
        """The newest observations of the episode, oldest first; zeros before its first row."""
        seen = np.zeros((self.spec.frame_stack, 2), np.float32)
        for back in range(self.spec.frame_stack):
            before = position - back
            same = self.episode[e].get(before) == self.episode[e].get(position)
            if there and same and before in self.rows[e]:
                seen[-1 - back] = self.rows[e][before].observation
        return seen.reshape(-1)


COUNTERS = {"steps": 0, "updates": 0, "learning_since": -1}


def present(store):
    return np.flatnonzero(store.state()["selector"]["present"])


def slots_per_environment(store):
    return len(store.state()["selector"]["present"]) // store.num_envs


# Contextual selection numbers slots differently from the others.
SELECTORS = st.sampled_from(["uniform", "contextual"])


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    num_envs=st.integers(1, 3),
    length=st.integers(2, 7),
    period=st.integers(1, 5),
    crosses=st.booleans(),
    ends=st.sampled_from([0.0, 0.05, 0.2, 0.6]),
    slack=st.integers(0, 12),
    steps=st.integers(1, 60),
    frame_stack=st.integers(1, 4),
    selector=SELECTORS,
    pauses=st.sampled_from([0.0, 0.4]),
)
def test_sequences_are_the_rows_that_were_added(
    seed, num_envs, length, period, crosses, ends, slack, steps, frame_stack, selector, pauses
):
    """Environments may pause, and with pauses episodes are cut off."""
    spec = sequence_spec(length, period, crosses, stored=True, frame_stack=frame_stack)
    capacity = num_envs * (length + period + frame_stack + slack)
    config = ReplayConfig(capacity=capacity, min_rows=1, batch_size=2, selector=selector)
    store = LocalReplay(SPEC, spec, config, num_envs=num_envs, seed=0)
    naive, rng, ever = NaiveStore(num_envs, capacity, spec), np.random.default_rng(seed), set()
    fresh = (iter(stream(60, 1, spec, seed=seed + n, ends=ends)) for n in itertools.count())
    streams = list(itertools.islice(fresh, num_envs))
    for _ in range(steps):
        environments = rng.permutation(num_envs)[rng.random(num_envs) >= pauses]
        rows = [next(streams[e]) for e in environments]
        if rows:
            store.add(jax.tree.map(lambda *x: np.concatenate(x), *rows), environments)
        for e, row in zip(environments, rows, strict=True):
            naive.add(row, e)
        if rng.random() < pauses / 8:
            e = int(rng.integers(num_envs))
            store.cut(e)
            naive.cut(e)
            streams[e] = next(fresh)
        assert store.num_sequences == len(naive.sequences())
        ever |= naive.sequences()
    if crosses:
        starts = [[start for e, start in ever if e == env] for env in range(num_envs)]
        assert store.rounds() == min(map(len, starts))
        if not store.rounds():
            with pytest.raises(ValueError, match="Not every environment has a complete sequence"):
                store.draw_now(newest=True)
        elif slack >= period:  # else the newest one may be overwritten
            slots, sample = sample_now(store, newest=True)
            assert store.starts(slots).tolist() == [*map(max, starts)]
            assert_equal((sample.rows, sample.mask), store.read(slots))
            assert sample.weights.tolist() == [1.0] * num_envs
    slots = present(store)
    if not slots.size:
        return
    rows, mask = store.read(slots)
    environments = slots // slots_per_environment(store)
    found = list(zip(environments.tolist(), store.starts(slots).tolist(), strict=True))
    assert set(found) == naive.sequences()
    for index, (e, start) in enumerate(found):
        wanted, wanted_mask = naive.read(e, start)
        read = jax.tree.map(lambda x, index=index: x[index], rows)
        np.testing.assert_array_equal(mask[index], wanted_mask)
        memory = jax.tree.map(lambda x: x[0], wanted.extras["memory"])  # the first row's alone
        wanted = wanted._replace(extras={"mu": wanted.extras["mu"], "memory": memory})
        jax.tree.map(np.testing.assert_array_equal, read, wanted)


def filled(config, spec, steps=40, num_envs=2, ends=0.1, seed=0):
    store = LocalReplay(SPEC, spec, config, num_envs=num_envs, seed=seed)
    rows = iter(stream(steps + 50, num_envs, spec, seed=1, ends=ends))
    for _ in range(steps):
        store.add(next(rows))
    return store, rows


def test_a_sample_is_a_batch_with_weights():
    config = ReplayConfig(
        capacity=100, min_rows=1, batch_size=5, selector="contextual", uniform_fraction=0.2
    )
    store, _ = filled(config, sequence_spec(4, 1, True))
    slots, sample = sample_now(store)
    set_slots(store, slots, np.arange(1.0, 6.0))
    slots, sample = sample_now(store)
    assert sample.rows.observation.shape == (5, 4, 2)
    assert sample.rows.extras["mu"].shape == (5, 4, 3)
    assert (sample.weights.dtype, sample.weights.shape) == (np.float32, (5,))
    assert sample.mask.all()
    tree = store.state()["selector"]
    priorities = np.where(tree["known"], tree["priorities"], np.nan)
    estimated = oracles.priority_tree_probabilities(tree["present"], priorities)[slots]
    probabilities = 0.2 / store.num_sequences + 0.8 * estimated
    np.testing.assert_allclose(sample.weights, 1 / (store.num_sequences * probabilities), rtol=1e-6)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), sample)
    assert store.shapes == [shapes]


def test_state_is_small_while_the_store_is_nearly_empty():
    config = ReplayConfig(capacity=100_000, min_rows=1)
    store, _ = filled(config, sequence_spec(5, 1, True), steps=10)
    assert all(array.shape[:2] == (2, 10) for array in store.state()["rows"].values())


def test_memory_does_not_grow_once_the_rings_are_made():
    config = ReplayConfig(capacity=1000, min_rows=1)
    store, rows = filled(config, sequence_spec(4, 1, True), steps=10)
    before = store.state()["rows"]["observation"]
    assert store.nbytes == 1000 * (8 + 4 + 4 + 1 + 1 + 2 + 4 + 12)  # 2 align the action
    for row in itertools.islice(rows, 40):
        for _ in range(50):
            store.add(row)
    assert store.num_rows == store.capacity == 1000
    assert np.shares_memory(before, store.state()["rows"]["observation"])


@pytest.mark.parametrize("frame_stack", [1, 4])
def test_a_million_atari_rows_stay_below_8_gb(frame_stack):
    atari = EnvironmentSpec(specs.Array((84, 84, 1), np.uint8), specs.DiscreteArray(18))
    extras = {"mu": jax.ShapeDtypeStruct((18,), np.float32)}
    spec = SequenceSpec(length=33, extras=extras, frame_stack=frame_stack)
    store = LocalReplay(atari, spec, ReplayConfig(), num_envs=4, seed=0)  # not touched: not used
    assert store.capacity == 1_000_000
    assert store.nbytes < 8e9
    assert store.shapes[0].rows.observation.shape == (4, 33, 84, 84, frame_stack)


def test_first_row_extras_are_kept_only_where_a_sequence_can_start():
    config = ReplayConfig(capacity=1000, min_rows=1)
    each = LocalReplay(SPEC, sequence_spec(4, 1, True, stored=True), config, num_envs=2, seed=0)
    few = LocalReplay(SPEC, sequence_spec(4, 10, True, stored=True), config, num_envs=2, seed=0)
    assert each.nbytes - few.nbytes == 900 * (16 + 5 * 2 + 2)  # 2 align the next one


def test_capacities_that_do_not_fit_are_refused_with_the_numbers():
    spec = sequence_spec(33, 1, True)
    with pytest.raises(
        ValueError,
        match=r"capacity of 100 rows over 4 environments keeps 25 rows each, but a sequence needs "
        r"33, and min_rows 1 in all: at least 33 rows each, 132 in all, are needed\.",
    ):
        LocalReplay(SPEC, spec, ReplayConfig(capacity=100, min_rows=1), num_envs=4, seed=0)


def test_a_store_that_is_full_has_enough_rows_to_learn_from():
    """Of 199 rows, 3 environments keep 6 periods of 10 each."""
    make = functools.partial(LocalReplay, SPEC, sequence_spec(4, 10, False), num_envs=3, seed=0)
    assert make(ReplayConfig(capacity=199, min_rows=180)).capacity == 180
    with pytest.raises(ValueError, match="min_rows 181 in all: at least 70 rows each, 210 in all"):
        make(ReplayConfig(capacity=199, min_rows=181))


@pytest.mark.parametrize(("stored", "needed"), [(False, "36000.0"), (True, "64000.0")])
def test_stores_larger_than_the_memory_are_refused_with_the_numbers(stored, needed):
    spec = sequence_spec(33, 1, True, stored)
    with pytest.raises(ValueError, match=rf"needs {needed} GB, but only .* GB .*: at most \d+ fit"):
        LocalReplay(SPEC, spec, ReplayConfig(capacity=10**12), num_envs=1, seed=0)


def test_a_slot_that_was_overwritten_has_another_start():
    config = ReplayConfig(capacity=8, min_rows=1)
    store, rows = filled(config, sequence_spec(3, 2, True), steps=8, num_envs=1)
    slots = present(store)
    assert store.starts(slots).tolist() == [0, 2, 4]
    assert store.starts(np.array([3])).tolist() == [-1]
    store.add(next(rows))
    assert store.starts(slots).tolist() == [-1, 2, 4]
    store.add(next(rows))
    store.add(next(rows))
    assert store.starts(np.arange(4)).tolist() == [8, -1, 4, 6]


def test_contextual_selection_takes_a_slot_again_only_in_the_second_lap():
    config = ReplayConfig(capacity=6, min_rows=1, selector="contextual")
    store, rows = filled(config, sequence_spec(3, 2, True), steps=11, num_envs=1)
    assert store.starts(np.arange(8)).tolist() == [-1, -1, -1, 6, 8, -1, -1, -1]
    for row in itertools.islice(rows, 8):
        store.add(row)
    assert store.starts(np.arange(8)).tolist() == [16, -1, -1, -1, -1, -1, -1, 14]


def test_unknown_environments_are_refused():
    config = ReplayConfig(capacity=100, min_rows=1)
    store, rows = filled(config, sequence_spec(3, 2, True), steps=1, num_envs=2)
    both = next(rows)
    for wrong, row in (([0, 0], both), ([2], part(both, 0)), ([-1], part(both, 0))):
        with pytest.raises(ValueError, match=r"distinct and from 0 to 1, got"):
            store.add(row, np.array(wrong))


def estimates(store):
    """Environments, starts, whether known, and estimates by the definition, of all sequences."""
    state = store.state()["selector"]
    priorities = np.where(state["known"], state["priorities"], np.nan)
    slots = present(store)
    estimated = oracles.priority_tree_estimates(state["present"], priorities)[slots]
    environments = slots // slots_per_environment(store)
    return environments, store.starts(slots), state["known"][slots], estimated


@pytest.mark.parametrize("rows", [33, 64])
def test_the_newest_sequences_are_estimated_from_new_ones(rows):
    """Priorities double in a lap; all but the two newest are known. Four laps after the first."""
    config = ReplayConfig(capacity=rows, min_rows=1, selector="contextual")
    spec, ratios = sequence_spec(2), []
    store = LocalReplay(SPEC, spec, config, num_envs=1, seed=0)
    (row,) = stream(1, 1, spec, ends=0.0)
    for time in range(5 * rows):
        store.add(row)
        slots = present(store)
        starts = store.starts(slots)
        trained = starts == time - 3
        set_slots(store, slots[trained], 2.0 ** (starts[trained] / rows))
        if time < rows:
            continue
        _, starts, known, estimated = estimates(store)
        assert set(starts[~known]) == {time - 2, time - 1}
        truth = 2.0 ** (starts / rows)
        ratios.append(estimated[~known].mean() / truth[~known].mean())
        assert estimated[~known].min() >= truth[known].mean() * (1 - 1e-12), "the oldest weigh more"
    # While no slot since the last multiple of half a ring is known, the mean over all: 0.72.
    assert np.mean(np.array(ratios) < 0.75) < 0.05


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    num_envs=st.integers(2, 5),
    rows_each=st.integers(4, 20),
    period=st.integers(1, 2),
    seed=st.integers(0, 2**31),
)
def test_estimates_come_from_the_environment_itself(num_envs, rows_each, period, seed):
    """Wherever an environment has one known priority; those of environment e are around 10^(3e)."""
    config = ReplayConfig(capacity=num_envs * rows_each, min_rows=1, selector="contextual")
    spec, rng = sequence_spec(2, period), np.random.default_rng(seed)
    store = LocalReplay(SPEC, spec, config, num_envs=num_envs, seed=0)
    (row,) = stream(1, num_envs, spec, ends=0.0)
    for _ in range(40):
        some = rng.permutation(num_envs)[: rng.integers(1, num_envs + 1)]
        store.add(jax.tree.map(lambda x, some=some: x[some], row), some)
        slots = present(store)
        trained = slots[rng.random(slots.size) < 0.1]
        unit = 10.0 ** (3 * (trained // slots_per_environment(store)))
        set_slots(store, trained, unit * rng.uniform(1, 2, trained.size))
    environments, _, known, estimated = estimates(store)
    for e in np.unique(environments[known]):
        of_e = environments == e
        own = estimated[of_e & known]
        assert (estimated[of_e] >= own.min() * (1 - 1e-12)).all()
        assert (estimated[of_e] <= own.max() * (1 + 1e-12)).all()


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


def test_transitions_are_replayed_as_often_as_the_ratio_says():
    num_envs = 8
    replay = make_replay(
        num_envs=num_envs,
        batch_size=16,
        pace="rounds",
        replay_ratio=4.0,
        on_policy=True,
        capacity_per_environment=True,
    )
    rows = zero_rows(replay, num_envs)
    replayed, newest, rounds = 0, 0, 1600 // num_envs
    for _ in range(3 * rounds + 1):  # segments of three transitions share a row
        replay.add(rows)
        drawn = []
        while (batch := replay.sample()) is not None:
            drawn.append(len(batch[1].weights))
        newest += sum(drawn[:1])
        replayed += sum(drawn[1:])
    segments = rounds * num_envs
    assert newest == segments
    deviation = 16 * np.sqrt(4 * segments / 16) / segments  # of a Poisson number of batches
    assert abs(replayed / segments - 4) < 4 * deviation


@pytest.mark.parametrize("num_envs", [1, 2, 8, 16])
def test_a_capacity_for_each_environment(num_envs):
    replay = make_replay(num_envs=num_envs, capacity=60, capacity_per_environment=True)
    assert replay.capacity == 60 * num_envs
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
        ({"length": 3}, "length 4, but the config has 3"),
        ({"selector": "uniform"}, "selector proportional, but the config has uniform"),
    ],
)
def test_rows_that_were_cut_or_selected_in_another_way_are_refused(changes, differing):
    replay = make_replay(selector="proportional")
    other = make_replay(**{"selector": "proportional", **changes})
    for _ in range(5):
        replay.add(zero_rows(replay))
    with pytest.raises(ValueError, match=f"the stored rows have {differing}"):
        other.restore(replay.state(), COUNTERS)
    assert other.num_rows == 0


@pytest.mark.parametrize(
    ("selector", "starts"), [("proportional", [12, -1, 6]), ("contextual", [-1, -1, 6])]
)
def test_priorities_of_overwritten_sequences_are_ignored(selector, starts):
    replay = make_replay(capacity=12, num_envs=1, selector=selector, acting_steps_per_update=1e-3)
    for _ in range(12):
        replay.add(zero_rows(replay, 1))
    slots = np.arange(3)
    keys = np.stack([slots, replay.starts(slots)])
    assert keys[1].tolist() == [0, 3, 6]
    for _ in range(4):  # overwrites the sequences of slots 0 and 1
        replay.add(zero_rows(replay, 1))
    assert replay.starts(slots).tolist() == starts
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
