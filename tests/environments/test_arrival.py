import numpy as np
import pytest
from dm_env import specs
from hypothesis import given
from hypothesis import strategies as st
from stepping import FIRST, LAST, MID

from retrax.environments.arrival import arrival, checked_actions, integer_seeds


def test_arrival_by_hand():
    """On a first step the rest is ignored; what is both is a termination."""
    flags = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]], bool)
    found = arrival("seen", np.array([1, 2, 3, 4, np.nan, np.nan]), *flags.T)
    np.testing.assert_array_equal(found.step_type, [MID, LAST, LAST, LAST, FIRST, FIRST])
    np.testing.assert_array_equal(found.reward, [1, 2, 3, 4, 0, 0])
    np.testing.assert_array_equal(found.discount, [1, 0, 1, 0, 1, 1])
    assert [x.dtype for x in found[:3]] == [np.int32, np.float32, np.float32]
    assert found.observation == "seen"


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
