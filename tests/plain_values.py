"""Values of states of environments, compared bit by bit."""

import collections

import numpy as np


def same(one, other):
    """Raises an AssertionError unless they are equal and of equal types; NaN and -0.0 too."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray | np.generic):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif isinstance(one, np.random.Generator):
        same(one.bit_generator.state, other.bit_generator.state)
    elif isinstance(one, np.random.RandomState):
        same(one.get_state(), other.get_state())
    elif isinstance(one, list | tuple | collections.deque):
        assert len(one) == len(other)
        assert getattr(one, "maxlen", None) == getattr(other, "maxlen", None)
        for pair in zip(one, other, strict=True):
            same(*pair)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    else:
        assert repr(one) == repr(other)
