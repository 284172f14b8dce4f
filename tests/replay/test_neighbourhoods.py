"""The neighbourhoods from which a store's contextual selection estimates unknown priorities."""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import oracles
import pytest
from dm_env import specs

from retrax.datatypes import EnvironmentSpec
from retrax.replay import ReplayConfig, SequenceSpec, SequenceStore

SPEC = EnvironmentSpec(specs.Array((), np.float32), specs.DiscreteArray(3))
LENGTH = 2


def make_store(*, num_envs, rows_each, period):
    return SequenceStore(
        SPEC,
        SequenceSpec(length=LENGTH, period=period),
        ReplayConfig(capacity=num_envs * rows_each, min_rows=1, selector="contextual"),
        num_envs=num_envs,
        seed=0,
    )


def add_row(store, environments):
    (shapes,) = store.shapes
    rows = jax.tree.map(lambda x: np.zeros((len(environments), *x.shape[2:]), x.dtype), shapes.rows)
    store.add(rows, np.array(environments))


def present(store):
    return np.flatnonzero(store.state()["selector"]["present"])


def environments_of(store, slots):
    return slots // (len(store.state()["selector"]["present"]) // store.num_envs)


def estimates(store):
    """Environments, starts, whether known, and estimates by the definition, of all sequences."""
    state = store.state()["selector"]
    priorities = np.where(state["known"], state["priorities"], np.nan)
    slots = present(store)
    estimated = oracles.priority_tree_estimates(state["present"], priorities)[slots]
    return environments_of(store, slots), store.starts(slots), state["known"][slots], estimated


@pytest.mark.parametrize("rows", [33, 50, 64])
def test_the_newest_sequences_are_estimated_from_new_ones(rows):
    """Priorities double in a lap; all but the two newest are known. Four laps after the first."""
    store, ratios = make_store(num_envs=1, rows_each=rows, period=1), []
    for time in range(5 * rows):
        add_row(store, [0])
        slots = present(store)
        starts = store.starts(slots)
        trained = starts == time - LENGTH - 1
        store.set_priorities(slots[trained], 2.0 ** (starts[trained] / rows))
        if time < rows:
            continue
        _, starts, known, estimated = estimates(store)
        assert set(starts[~known]) == {time - 2, time - 1}
        truth = 2.0 ** (starts / rows)
        ratios.append(estimated[~known].mean() / truth[~known].mean())
        assert estimated[~known].min() >= truth[known].mean() * (1 - 1e-12), "the oldest weigh more"
    # While no slot since the last multiple of half a ring is known, the mean over all: 0.72.
    assert np.mean(np.array(ratios) < 0.75) < 0.05


@hypothesis.settings(max_examples=50, deadline=None, derandomize=True)
@hypothesis.given(
    num_envs=st.integers(2, 5),
    rows_each=st.integers(4, 20),
    period=st.integers(1, 2),
    seed=st.integers(0, 2**31),
)
def test_estimates_come_from_the_environment_itself(num_envs, rows_each, period, seed):
    """Wherever an environment has one known priority; those of environment e are around 10^(3e)."""
    store = make_store(num_envs=num_envs, rows_each=rows_each, period=period)
    rng = np.random.default_rng(seed)
    for _ in range(40):
        add_row(store, rng.permutation(num_envs)[: rng.integers(1, num_envs + 1)])
        slots = present(store)
        trained = slots[rng.random(slots.size) < 0.1]
        unit = 10.0 ** (3 * environments_of(store, trained))
        store.set_priorities(trained, unit * rng.uniform(1, 2, trained.size))
    environments, _, known, estimated = estimates(store)
    for e in np.unique(environments[known]):
        of_e = environments == e
        own = estimated[of_e & known]
        assert (estimated[of_e] >= own.min() * (1 - 1e-12)).all()
        assert (estimated[of_e] <= own.max() * (1 + 1e-12)).all()
