import numpy as np
import pytest
from dm_env import specs
from hypothesis import given
from hypothesis import strategies as st
from stepping import FIRST, LAST, MID

from retrax.environments.arrival import arrival, checked_actions, integer_seeds

FLAGS = st.tuples(st.booleans(), st.booleans(), st.booleans())


def by_definition(reward, terminated, truncated, first):
    """Step type, reward and discount of one environment."""
    if first:
        return FIRST, 0.0, 1.0
    if terminated:
        return LAST, reward, 0.0
    return (LAST if truncated else MID), reward, 1.0


@given(rows=st.lists(st.tuples(st.integers(-9, 9), FLAGS), min_size=1, max_size=6))
def test_arrival_against_its_definition(rows):
    flags = np.array([row[1] for row in rows])
    reward = np.where(flags[:, 2], np.nan, [row[0] for row in rows])  # dropped on a first step
    observation = np.arange(len(rows))
    found = arrival(observation, reward, *flags.T)
    expected = [by_definition(r, *f) for r, f in rows]
    np.testing.assert_array_equal(
        np.stack([found.step_type, found.reward, found.discount], axis=1), expected
    )
    assert found.observation is observation
    assert found.step_type.dtype == np.int32
    assert found.reward.dtype == found.discount.dtype == np.float32


@given(seed=st.integers(0, 2**64), few=st.integers(1, 4), more=st.integers(1, 4))
def test_more_environments_keep_the_seeds_of_the_first_ones(seed, few, more):
    short, long = integer_seeds(seed, few), integer_seeds(seed, few + more)
    np.testing.assert_array_equal(short, long[:few])
    assert ((long >= 0) & (long < 2**31)).all()


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8])
def test_actions_take_the_type_of_the_spec_and_may_be_out_of_bounds(dtype):
    found = checked_actions(np.array([0, 2], dtype), specs.DiscreteArray(3, np.int32), 2)
    assert (found.tolist(), found.dtype) == ([0, 2], np.int32)
    found = checked_actions([[5, 0.5]], specs.BoundedArray((2,), np.float32, -1, 1), 1)
    assert (found.tolist(), found.dtype) == ([[5, 0.5]], np.float32)
