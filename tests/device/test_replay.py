"""The replay in JAX against the host's store, which has oracles of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay_rows import SPEC, sample_now, sequence_spec, set_slots, stream

from retrax.datatypes import ReplayConfig
from retrax.device import DeviceReplay
from retrax.device.replay import _draw, choose
from retrax.replay import LocalReplay

NUM_ENVS = 3


def filled(sequence, config, num_rows, look=lambda *_: None):
    """A replay and a store with the same rows; `look` sees both after each row."""
    replay = DeviceReplay(SPEC, sequence, config, num_envs=NUM_ENVS)
    store = LocalReplay(SPEC, sequence, config, num_envs=NUM_ENVS, seed=0)
    state, add = replay.init(), jax.jit(replay.add)
    for rows in stream(num_rows, NUM_ENVS, sequence, seed=1):
        store.add(rows)
        state = add(state, rows)
        look(state, store)
    return replay, state, store


def present_of(store):
    return store.state()["selector"]["present"]


@pytest.mark.parametrize(
    ("length", "period", "crosses", "frame_stack"),
    [(5, 2, True, 3), (4, 1, False, 1), (6, 3, False, 2)],
)
def test_all_sequences_are_those_of_the_store(length, period, crosses, frame_stack):
    sequence = sequence_spec(length, period, crosses, True, frame_stack)
    config = ReplayConfig(capacity=16 * NUM_ENVS, min_rows=1)
    replay = DeviceReplay(SPEC, sequence, config, num_envs=NUM_ENVS)
    read, seen = jax.jit(replay.read), []

    def look(state, store):
        present = np.flatnonzero(present_of(store))
        np.testing.assert_array_equal(np.flatnonzero(state.present), present)
        every = np.resize(present, present_of(store).size) if present.size else present
        if every.size:  # one shape, one compilation
            rows, mask = store.read(every)
            jax.tree.map(np.testing.assert_array_equal, read(state, every), (rows, mask))
            newest = store.state()["heads"][every // (present_of(store).size // NUM_ENVS)] - 1
            ages = (newest - store.starts(every)) * NUM_ENVS
            np.testing.assert_array_equal(replay.ages(state, every), ages)
            seen.append(mask.all())

    _, state, store = filled(sequence, config, 45, look)
    assert len(seen) > 30
    assert all(seen) == (crosses or length == 2)
    assert replay.num_rows(state) == store.num_rows
    assert state.present.sum() == store.num_sequences
    assert replay.capacity == store.capacity
    assert replay.nbytes == sum(x.nbytes for x in jax.tree.leaves(state))
    if crosses:
        slots, sample = replay.newest(state)
        wanted_slots, wanted = sample_now(store, newest=True)
        np.testing.assert_array_equal(slots, wanted_slots)
        jax.tree.map(np.testing.assert_array_equal, sample, wanted)


def test_the_first_two_levels_of_a_draw_have_the_probabilities_of_the_masses():
    masses = np.zeros(23, np.float32)
    masses[[0, 4, 5, 13, 22]] = [1.0, 2.0, 0.5, 4.0, 2.5]
    index, probabilities = choose(jax.random.key(0), jnp.asarray(masses), (20_000,))
    np.testing.assert_allclose(probabilities, masses[index] / 10.0, rtol=1e-6)
    found = np.bincount(index, minlength=23) / 20_000
    np.testing.assert_allclose(found, masses / 10.0, atol=0.012)


def test_what_has_no_mass_is_not_drawn_where_rounding_raises_the_sum(monkeypatch):
    """Draws whose part of the sum is that before an entry of mass 0, after which it is larger."""
    rng = np.random.default_rng(0)
    masses = jnp.asarray(rng.random(2000) * (rng.random(2000) < 0.6), jnp.float32)
    sums = jnp.cumsum(masses)
    before = sums[jnp.flatnonzero((jnp.diff(sums) > 0) & (masses[1:] == 0))]
    parts = before / sums[-1]
    parts = parts[parts * sums[-1] == before]
    assert parts.size > 2
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: parts)
    assert (masses[_draw(None, masses[None], parts.shape)] > 0).all()


def test_proportional_draws_are_those_of_the_store():
    config = ReplayConfig(
        capacity=16 * NUM_ENVS,
        min_rows=1,
        batch_size=20_000,
        selector="proportional",
        priority_exponent=0.5,
        importance_exponent=0.7,
        uniform_fraction=0.2,
    )
    sequence = sequence_spec(4, 3, True)
    replay, state, store = filled(sequence, config, 20)
    slots = np.flatnonzero(present_of(store))[:5]
    priorities = np.array([0.0, 9.0, 3.0, 1.0, 0.5], np.float32)
    set_slots(store, slots, priorities)
    state = replay.set_priorities(state, jnp.asarray(slots), jnp.asarray(priorities))
    for rows in stream(4, NUM_ENVS, sequence, seed=3):  # new sequences have the largest one, 9
        store.add(rows)
        state = replay.add(state, rows)
    np.testing.assert_array_equal(np.asarray(state.present).ravel(), present_of(store))
    drawn, sample = jax.jit(replay.sample)(state, jax.random.key(0))
    probabilities = np.zeros(present_of(store).size)
    present = np.flatnonzero(present_of(store))
    probabilities[present] = store._selector.probabilities(present)
    found = np.bincount(drawn, minlength=len(probabilities)) / 20_000
    np.testing.assert_allclose(found, probabilities, atol=0.012)
    weights = (1 / (len(present) * probabilities[drawn])) ** 0.7
    np.testing.assert_allclose(sample.weights, weights, rtol=1e-5)


@pytest.mark.parametrize("batch", [1, 5, 40])
def test_of_a_repeated_slot_the_last_priority_is_written_alone(batch):
    """An accelerator may write repeated indices in any order."""
    config = ReplayConfig(capacity=48, min_rows=1, selector="proportional")
    replay, state, store = filled(sequence_spec(4, 3, True), config, 12)
    rng = np.random.default_rng(batch)
    slots = rng.choice(np.flatnonzero(present_of(store)), batch)
    priorities = rng.random(batch).astype(np.float32)
    set_slots(store, slots, priorities)
    arguments = state, jnp.asarray(slots, jnp.int32), jnp.asarray(priorities)
    found = replay.set_priorities(*arguments).priorities
    wanted = store.state()["selector"]["priorities"]
    np.testing.assert_array_equal(np.ravel(found), wanted.astype(np.float32))
    equations = jax.make_jaxpr(replay.set_priorities)(*arguments).eqns
    scatters = [each.params for each in equations if each.primitive.name.startswith("scatter")]
    assert [params["unique_indices"] for params in scatters] == [True]


def test_draws_are_uniform_where_all_priorities_are_zero():
    config = ReplayConfig(
        capacity=48, min_rows=1, batch_size=64, selector="proportional", uniform_fraction=0.0
    )
    replay, state, _ = filled(sequence_spec(4, 3, True), config, 12)
    slots = jnp.flatnonzero(state.present.ravel())
    state = replay.set_priorities(state, slots, jnp.zeros(len(slots)))
    drawn, sample = jax.jit(replay.sample)(state, jax.random.key(0))
    assert set(drawn.tolist()) == set(slots.tolist())
    np.testing.assert_allclose(sample.weights, np.ones(64), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"selector": "contextual"}, "replay.selector is uniform or proportional, got contextual"),
        ({"capacity": 9}, "A replay capacity of 9 rows over 3 environments keeps 3 rows each"),
        ({"pace": "rounds"}, "pace must be steady where sequences end with episodes, got rounds"),
        ({"pace": "rounds", "on_policy": True}, "on_policy must be False where sequences end"),
    ],
)
def test_a_replay_that_is_not_possible_is_refused(changes, sentence):
    sequence = sequence_spec(4, 3, "pace" not in changes)
    with pytest.raises(ValueError, match=sentence):
        DeviceReplay(SPEC, sequence, ReplayConfig(min_rows=1, **changes), num_envs=NUM_ENVS)
